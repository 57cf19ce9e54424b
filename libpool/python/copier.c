/* _cxlpool.Copier and _cxlpool.Copy: copies in the background, with an eventfd that reports each end. The
 * package's put_async and get_async (cxlpool/_async.py) are made of them; users see only those.
 *
 * A Copy holds its buffer until the library touches it no more. Freeing one that has not ended
 * cancels it and waits for that, for the rest of one MiB. One thread uses a Copier and its copies.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libpool/python/module.h"

typedef struct {
  PyObject_HEAD
  cxlpool_copier *copier;
  int eventfd; /* Readable when a copy has ended. -1: there is none. */
} CopierObject;

typedef struct {
  PyObject_HEAD
  cxlpool_op *op; /* NULL: released. */
  Py_buffer buffer;
  PyObject *copier; /* Whose eventfd reports its end. */
} CopyObject;

static PyTypeObject CopierType, CopyType;

/* ---- Copy ----------------------------------------------------------------------------------- */

static PyObject *copy_release(CopyObject *self, PyObject *ignored) {
  (void)ignored;
  cxlpool_op *const op = self->op;
  self->op = NULL;
  if (op != NULL) {
    Py_BEGIN_ALLOW_THREADS;
    cxlpool_op_free(op);
    Py_END_ALLOW_THREADS;
  }
  PyBuffer_Release(&self->buffer);
  Py_RETURN_NONE;
}

static void copy_dealloc(CopyObject *self) {
  Py_DECREF(copy_release(self, NULL));
  Py_DECREF(self->copier);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *copy_done(CopyObject *self, PyObject *ignored) {
  (void)ignored;
  return PyBool_FromLong(cxlpool_op_done(self->op));
}

static PyObject *copy_cancel(CopyObject *self, PyObject *ignored) {
  (void)ignored;
  cxlpool_op_cancel(self->op);
  Py_RETURN_NONE;
}

static PyObject *copy_result(CopyObject *self, PyObject *ignored) {
  (void)ignored;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  if (cxlpool_op_wait(self->op, 0, NULL, &error) != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

static PyMethodDef copy_methods[] = {
    {"done", (PyCFunction)copy_done, METH_NOARGS,
     "Whether it has ended, and its buffer is touched no more."},
    {"cancel", (PyCFunction)copy_cancel, METH_NOARGS,
     "Ends it before its next MiB. Does not wait."},
    {"result", (PyCFunction)copy_result, METH_NOARGS, "Raises an Error if it failed, or goes on."},
    {"__enter__", return_self, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)copy_release, METH_VARARGS,
     "Cancels it where it has not ended, waits until its buffer is touched no more, and lets that "
     "go."},
    {NULL, NULL, 0, NULL}};
static PyTypeObject CopyType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cxlpool._cxlpool.Copy",
    .tp_basicsize = sizeof(CopyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "A copy that was submitted.",
    .tp_dealloc = (destructor)copy_dealloc,
    .tp_methods = copy_methods};

/* ---- Copier --------------------------------------------------------------------------------- */

static PyObject *copier_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  if (!PyArg_ParseTuple(args, ":Copier") || (kwargs != NULL && PyDict_Size(kwargs) > 0)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "Copier() takes no arguments");
    return NULL;
  }
  CopierObject *const self = (CopierObject *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  self->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (self->eventfd < 0) {
    Py_DECREF(self);
    return PyErr_SetFromErrno(PyExc_OSError);
  }
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  if (cxlpool_copier_start(NULL, &self->copier, &error) == 0) return (PyObject *)self;
  Py_DECREF(self);
  return raise_error(&error);
}

/* Its thread is gone before the eventfd is closed. */
static void copier_dealloc(CopierObject *self) {
  Py_BEGIN_ALLOW_THREADS;
  cxlpool_copier_stop(self->copier);
  Py_END_ALLOW_THREADS;
  if (self->eventfd >= 0) close(self->eventfd);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *copier_fileno(CopierObject *self, PyObject *ignored) {
  (void)ignored;
  return PyLong_FromLong(self->eventfd);
}

/* Submits what was parsed: the map's handle is needed no longer than this takes. The buffer goes to
 * the Copy, or is let go. */
static PyObject *submit(CopierObject *self, MapObject *map, uint64_t offset, Py_buffer *buffer,
                        int is_put) {
  CopyObject *const copy = map_is_open(map) ? PyObject_New(CopyObject, &CopyType) : NULL;
  if (copy == NULL) {
    PyBuffer_Release(buffer);
    return NULL;
  }
  copy->op = NULL;
  copy->buffer = *buffer;
  copy->copier = Py_NewRef(self);
  cxlpool_copy_options options = CXLPOOL_COPY_OPTIONS_INIT;
  options.eventfd = self->eventfd;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  const int code = is_put ? cxlpool_put_async(self->copier, map->map, offset, copy->buffer.buf,
                                              (size_t)copy->buffer.len, &options, &copy->op, &error)
                          : cxlpool_get_async(self->copier, map->map, offset, copy->buffer.buf,
                                              (size_t)copy->buffer.len, &options, &copy->op, &error);
  if (code == 0) return (PyObject *)copy;
  Py_DECREF(copy);
  return raise_error(&error);
}

static PyObject *copier_put(CopierObject *self, PyObject *args) {
  MapObject *map = NULL;
  uint64_t offset = 0;
  Py_buffer buffer;
  if (!PyArg_ParseTuple(args, "O!O&y*:put_async", &MapType, &map, size_of, &offset, &buffer)) {
    return NULL;
  }
  return submit(self, map, offset, &buffer, 1);
}

static PyObject *copier_get(CopierObject *self, PyObject *args) {
  MapObject *map = NULL;
  uint64_t offset = 0;
  Py_buffer buffer;
  if (!PyArg_ParseTuple(args, "O!O&w*:get_async", &MapType, &map, size_of, &offset, &buffer)) {
    return NULL;
  }
  return submit(self, map, offset, &buffer, 0);
}

static PyMethodDef copier_methods[] = {
    {"put", (PyCFunction)copier_put, METH_VARARGS, "put(map, offset, buffer): the Copy."},
    {"get", (PyCFunction)copier_get, METH_VARARGS, "get(map, offset, buffer): the Copy."},
    {"fileno", (PyCFunction)copier_fileno, METH_NOARGS,
     "The eventfd: readable when a copy has ended since it was read."},
    {NULL, NULL, 0, NULL}};
static PyTypeObject CopierType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cxlpool._cxlpool.Copier",
                                  .tp_basicsize = sizeof(CopierObject),
                                  .tp_flags = Py_TPFLAGS_DEFAULT,
                                  .tp_doc = "A thread that copies, and a queue.",
                                  .tp_new = copier_new,
                                  .tp_dealloc = (destructor)copier_dealloc,
                                  .tp_methods = copier_methods};

int add_copier_types(PyObject *module) {
  if (PyType_Ready(&CopierType) < 0 || PyType_Ready(&CopyType) < 0 ||
      PyModule_AddIntConstant(module, "MAX_WAITING_COPIES", CXLPOOL_MAX_WAITING_COPIES) < 0) {
    return -1;
  }
  return PyModule_AddObjectRef(module, "Copier", (PyObject *)&CopierType);
}
