/* What the sources of the Python module `cxlpool._cxlpool` share. Each makes types of one subject:
 * cxlpool.c pools, Regions and maps, directory.c named objects, copier.c copies in the background.
 *
 * What waits or copies lets other Python threads run, and meanwhile keeps what it works on: a close
 * by one of them is refused, or takes effect when the call has ended.
 */
#ifndef CXLPOOL_LIBPOOL_PYTHON_MODULE_H_
#define CXLPOOL_LIBPOOL_PYTHON_MODULE_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "cxlpool/cxlpool.h"

typedef struct {
  PyObject_HEAD cxlpool_map *map; /* NULL: closed. */
  Py_ssize_t views;               /* Buffers that are out, and calls that use it. */
} MapObject;

extern PyTypeObject MapType;

/* 0: it is closed, and ValueError is raised. */
int map_is_open(const MapObject *self);

/* Raises cxlpool.Error with `code`, `reason`, `message`, `remedy` and `errno`. Always NULL. */
PyObject *raise_error(const cxlpool_error *error);

/* Raises BufferError if there are views of `what`. -1: there are. */
int refuse_with_views(Py_ssize_t views, const char *what);

/* A converter of PyArg_Parse: a size as a uint64_t, from a whole number of bytes, or from text as
 * the CLI takes it: "512MiB", "1.5G". 1: done. */
int size_of(PyObject *value, void *to);

/* __enter__ of what `with` closes. */
PyObject *return_self(PyObject *self, PyObject *ignored);

/* Add the types of a source to the module. -1: raised. */
int add_directory_types(PyObject *module);
int add_copier_types(PyObject *module);

#endif /* CXLPOOL_LIBPOOL_PYTHON_MODULE_H_ */
