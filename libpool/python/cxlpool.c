/* The module `cxlpool._cxlpool`: cxlpool.h as objects, with the buffer protocol for the bytes. The package
 * `cxlpool` (folder cxlpool) shows them, and adds what needs no C.
 *
 * A Map is a buffer: memoryview, numpy.frombuffer, torch.frombuffer and file.readinto work on pool
 * memory without a copy. While somebody has a view of it, closing it is refused with BufferError.
 * tracemalloc counts mapped pool memory, in a domain of its own, at the line that mapped it.
 *
 * Blocking calls let other Python threads run. Objects are freed by their last reference, in any
 * order; `with` closes them sooner.
 */
#include "libpool/python/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* tracemalloc's domain of pool memory: "cxlp". */
#define TRACE_DOMAIN 0x63786c70u

static PyObject *g_error; /* cxlpool.Error */

typedef struct {
  PyObject_HEAD
  cxlpool_client *client;
} PoolObject;

typedef struct {
  PyObject_HEAD
  cxlpool_region *region;
  Py_ssize_t calls; /* Of all threads, that use `region` while others run. */
  int closed;       /* No more calls begin. */
  cxlpool_region_info info;
} RegionObject;

static PyTypeObject PoolType, RegionType;
static int region_begin(RegionObject *self);
static void region_end(RegionObject *self);

/* ---- Errors and arguments ------------------------------------------------------------------- */

PyObject *raise_error(const cxlpool_error *error) {
  PyObject *exception = NULL, *text = NULL;
  text = error->remedy[0] == '\0'
             ? PyUnicode_FromFormat("%s [%s]", error->message, error->reason)
             : PyUnicode_FromFormat("%s (%s) [%s]", error->message, error->remedy, error->reason);
  if (text == NULL) return NULL;
  exception = PyObject_CallOneArg(g_error, text);
  Py_DECREF(text);
  if (exception == NULL) return NULL;
  const struct {
    const char *name;
    PyObject *value;
  } parts[] = {{"code", PyLong_FromLong(error->code)},
               {"errno", PyLong_FromLong(error->sys_errno)},
               {"reason", PyUnicode_FromString(error->reason)},
               {"message", PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)strlen(error->message),
                                                "replace")},
               {"remedy", PyUnicode_DecodeUTF8(error->remedy, (Py_ssize_t)strlen(error->remedy),
                                               "replace")}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i) {
    if (parts[i].value != NULL) PyObject_SetAttrString(exception, parts[i].name, parts[i].value);
    Py_XDECREF(parts[i].value);
  }
  if (!PyErr_Occurred()) PyErr_SetObject(g_error, exception);
  Py_DECREF(exception);
  return NULL;
}

int refuse_with_views(Py_ssize_t views, const char *what) {
  if (views == 0) return 0;
  PyErr_Format(PyExc_BufferError, "%zd view%s of the %s %s still there: delete %s first", views,
               views == 1 ? "" : "s", what, views == 1 ? "is" : "are",
               views == 1 ? "it" : "them");
  return -1;
}

PyObject *return_self(PyObject *self, PyObject *ignored) {
  (void)ignored;
  return Py_NewRef(self);
}

/* As ParseByteSize of proto/support/byte_size.h, by which the CLI reads sizes: a fraction of a unit
 * is rounded up to a whole byte, and there is no part of a byte. 0: it is no size. */
static int parse_size(const char *text, uint64_t *bytes) {
  static const char kUnits[] = "KMGTP";
  static const char kBlanks[] = " \t\n\v\f\r";
  text += strspn(text, kBlanks);
  const size_t digits = strspn(text, "0123456789");
  const size_t length = strspn(text, "0123456789.");
  const char *unit = text + length;
  unit += strspn(unit, kBlanks);
  /* `& ~0x20` makes a letter a capital. */
  const char *const power = *unit == '\0' ? NULL : strchr(kUnits, *unit & ~0x20);
  const unsigned shift = power == NULL ? 0 : 10 * (unsigned)(power - kUnits + 1);
  if (power != NULL) ++unit;
  if (power != NULL && (unit[0] & ~0x20) == 'I' && (unit[1] & ~0x20) == 'B') {
    unit += 2;
  } else if ((*unit & ~0x20) == 'B') {
    ++unit;
  }
  unit += strspn(unit, kBlanks);
  if (*unit != '\0' || length == 0) return 0;
  if (digits == length) {
    errno = 0;
    const unsigned long long whole = strtoull(text, NULL, 10);
    if (errno != 0 || whole > UINT64_MAX >> shift) return 0;
    *bytes = (uint64_t)whole << shift;
    return 1;
  }
  if (shift == 0) return 0;
  char *end = NULL;
  const double number = PyOS_string_to_double(text, &end, NULL);
  if (PyErr_Occurred()) PyErr_Clear();
  const double scaled = number * (double)(UINT64_C(1) << shift);
  if (end != text + length || !(scaled >= 0) || scaled >= 9e18) return 0;
  *bytes = (uint64_t)scaled;
  if ((double)*bytes < scaled) ++*bytes;
  return 1;
}

/* A number may be of any type that stands for a whole one, as numpy's integers do. */
int size_of(PyObject *value, void *to) {
  uint64_t *const bytes = to;
  if (PyIndex_Check(value)) {
    PyObject *const whole = PyNumber_Index(value);
    if (whole == NULL) return 0;
    *bytes = PyLong_AsUnsignedLongLong(whole);
    Py_DECREF(whole);
    return !PyErr_Occurred();
  }
  Py_ssize_t length = 0;
  const char *const text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &length) : NULL;
  if (text == NULL) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "a size is a number of bytes, or text as \"512MiB\"");
    }
    return 0;
  }
  /* A NUL would hide what is behind it. */
  if (strlen(text) != (size_t)length || !parse_size(text, bytes)) {
    PyErr_Format(PyExc_ValueError, "%R is no size: give whole bytes, or as \"512MiB\"", value);
    return 0;
  }
  return 1;
}

/* A whole number of 32 bits: format "I" would keep the last 32 bits of any. 1: done. */
static int count_of(PyObject *value, void *to) {
  PyObject *const whole = PyNumber_Index(value);
  if (whole == NULL) return 0;
  const unsigned long number = PyLong_AsUnsignedLong(whole);
  Py_DECREF(whole);
  if (PyErr_Occurred()) return 0;
  if (number > UINT32_MAX) {
    PyErr_SetString(PyExc_OverflowError, "a count is less than 2**32");
    return 0;
  }
  *(uint32_t *)to = (uint32_t)number;
  return 1;
}

/* Seconds as milliseconds. 1: done. */
static int milliseconds_of(PyObject *value, void *to) {
  const double seconds = PyFloat_AsDouble(value);
  if (PyErr_Occurred()) return 0;
  if (!(seconds >= 0) || seconds > 4e6) {
    PyErr_SetString(PyExc_ValueError, "a time is seconds, 0 or more");
    return 0;
  }
  *(uint32_t *)to = (uint32_t)(seconds * 1000);
  return 1;
}

/* One of a list of words, as its number from 1 on. 1: done. */
static int word_of(PyObject *value, const char *const *words, int32_t *to) {
  const char *const text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : NULL;
  for (int32_t i = 0; text != NULL && words[i] != NULL; ++i) {
    if (strcmp(text, words[i]) == 0) {
      *to = i + 1;
      return 1;
    }
  }
  if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%R is none of its words", value);
  return 0;
}

static const char *const kSharing[] = {"exclusive", "single-writer", "multi-writer", NULL};
static const char *const kMode[] = {"devdax", "system-ram", NULL};
static const char *const kAccess[] = {"rw", "ro", NULL};
static const char *const kCoherence[] = {"software", "hardware", NULL};

static int sharing_of(PyObject *value, void *to) { return word_of(value, kSharing, to); }
static int mode_of(PyObject *value, void *to) { return word_of(value, kMode, to); }
static int access_of(PyObject *value, void *to) { return word_of(value, kAccess, to); }

/* The word of a number that word_of gave, or "unknown". */
static const char *word_for(const char *const *words, int32_t number) {
  for (int32_t i = 0; words[i] != NULL; ++i) {
    if (i + 1 == number) return words[i];
  }
  return "unknown";
}

/* ---- Map ------------------------------------------------------------------------------------ */

PyDoc_STRVAR(map_doc,
             "A Region's bytes, or a part of them, in this process: a buffer.\n\n"
             "memoryview(m), numpy.frombuffer(m, ...) and torch.frombuffer(m, ...) see the memory\n"
             "itself. close(), or the end of a with, unmaps it; while there are views of it that is\n"
             "refused with BufferError.");

int map_is_open(const MapObject *self) {
  if (self->map != NULL) return 1;
  PyErr_SetString(PyExc_ValueError, "the map is closed");
  return 0;
}

/* -1: refused. */
static int map_unmap(MapObject *self) {
  if (refuse_with_views(self->views, "map") != 0) return -1;
  cxlpool_map *const map = self->map;
  self->map = NULL;
  if (map == NULL) return 0;
  PyTraceMalloc_Untrack(TRACE_DOMAIN, (uintptr_t)cxlpool_map_address(map));
  Py_BEGIN_ALLOW_THREADS;
  cxlpool_unmap(map);
  Py_END_ALLOW_THREADS;
  return 0;
}

static void map_dealloc(MapObject *self) {
  map_unmap(self); /* A view has a reference: there is none. */
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *map_close(MapObject *self, PyObject *ignored) {
  (void)ignored;
  if (map_unmap(self) != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *map_exit(MapObject *self, PyObject *ignored) { return map_close(self, ignored); }

/* It counts as a view meanwhile: no other thread unmaps it. */
static PyObject *map_extend(MapObject *self, PyObject *value) {
  if (!map_is_open(self)) return NULL;
  RegionObject *const grown = (RegionObject *)value;
  if (!PyObject_TypeCheck(value, &RegionType) || grown->closed) {
    PyErr_SetString(PyExc_TypeError, "give the Region, opened again");
    return NULL;
  }
  if (!region_begin(grown)) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  ++self->views;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_map_extend(self->map, grown->region, &error);
  Py_END_ALLOW_THREADS;
  region_end(grown);
  if (code == 0) {
    PyTraceMalloc_Track(TRACE_DOMAIN, (uintptr_t)cxlpool_map_address(self->map),
                        cxlpool_map_size(self->map));
  }
  --self->views;
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

/* Publishes or refreshes a part, by `call`. It counts as a view meanwhile: no other thread unmaps it. */
static PyObject *map_order(MapObject *self, PyObject *args, PyObject *kwargs, const char *format,
                           int (*call)(const cxlpool_map *, const void *, size_t,
                                       cxlpool_error *)) {
  static char *names[] = {"offset", "length", NULL};
  uint64_t offset = 0, length = 0;
  /* What gives the sizes may be Python code, and close the map. */
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, size_of, &offset, size_of,
                                   &length) ||
      !map_is_open(self)) {
    return NULL;
  }
  const size_t size = cxlpool_map_size(self->map);
  if (offset > size || length > size - offset) {
    PyErr_Format(PyExc_ValueError, "%llu bytes from %llu on are not all in the map: it has %zu",
                 (unsigned long long)length, (unsigned long long)offset, size);
    return NULL;
  }
  if (length == 0) length = size - offset;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  ++self->views;
  Py_BEGIN_ALLOW_THREADS;
  code = call(self->map, (const char *)cxlpool_map_address(self->map) + offset, length, &error);
  Py_END_ALLOW_THREADS;
  --self->views;
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

static PyObject *map_publish(MapObject *self, PyObject *args, PyObject *kwargs) {
  return map_order(self, args, kwargs, "|O&O&:publish", cxlpool_publish);
}

static PyObject *map_refresh(MapObject *self, PyObject *args, PyObject *kwargs) {
  return map_order(self, args, kwargs, "|O&O&:refresh", cxlpool_refresh);
}

static int map_getbuffer(MapObject *self, Py_buffer *view, int flags) {
  view->obj = NULL;
  if (!map_is_open(self)) return -1;
  if (PyBuffer_FillInfo(view, (PyObject *)self, cxlpool_map_address(self->map),
                        (Py_ssize_t)cxlpool_map_size(self->map),
                        !cxlpool_map_writable(self->map), flags) != 0) {
    return -1;
  }
  ++self->views;
  return 0;
}

static void map_releasebuffer(MapObject *self, Py_buffer *view) {
  (void)view;
  --self->views;
}

static Py_ssize_t map_length(MapObject *self) {
  return map_is_open(self) ? (Py_ssize_t)cxlpool_map_size(self->map) : -1;
}

static PyObject *map_address(MapObject *self, void *ignored) {
  (void)ignored;
  return map_is_open(self) ? PyLong_FromVoidPtr(cxlpool_map_address(self->map)) : NULL;
}

static PyObject *map_writable(MapObject *self, void *ignored) {
  (void)ignored;
  return map_is_open(self) ? PyBool_FromLong(cxlpool_map_writable(self->map)) : NULL;
}

static PyObject *map_closed(MapObject *self, void *ignored) {
  (void)ignored;
  return PyBool_FromLong(self->map == NULL);
}

static PyMethodDef map_methods[] = {
    {"close", (PyCFunction)map_close, METH_NOARGS,
     "Unmaps it. BufferError: there are views of it."},
    {"extend", (PyCFunction)map_extend, METH_O,
     "Maps what the Region has got since behind what is there, within `reserve`. Takes the Region,\n"
     "opened again. Views that are there keep their length."},
    {"publish", (PyCFunction)(void (*)(void))map_publish, METH_VARARGS | METH_KEYWORDS,
     "publish(offset=0, length=0)\n\n"
     "What was stored there is visible to other hosts before anything that is stored afterwards.\n"
     "length 0: all from offset on. Nothing but a fence where the fabric is coherent."},
    {"refresh", (PyCFunction)(void (*)(void))map_refresh, METH_VARARGS | METH_KEYWORDS,
     "refresh(offset=0, length=0)\n\n"
     "What other hosts published there is what is loaded afterwards. The rules that both need are\n"
     "in docs/libpool.md, \"Between hosts\"."},
    {"__enter__", return_self, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)map_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef map_fields[] = {
    {"address", (getter)map_address, NULL, "Where it begins.", NULL},
    {"writable", (getter)map_writable, NULL, "Whether it may be stored to.", NULL},
    {"closed", (getter)map_closed, NULL, "Whether it is unmapped.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyBufferProcs map_buffer = {(getbufferproc)map_getbuffer,
                                   (releasebufferproc)map_releasebuffer};
static PySequenceMethods map_sequence = {.sq_length = (lenfunc)map_length};
PyTypeObject MapType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cxlpool.Map",
                               .tp_basicsize = sizeof(MapObject),
                               .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .tp_doc = map_doc,
                               .tp_dealloc = (destructor)map_dealloc,
                               .tp_methods = map_methods,
                               .tp_getset = map_fields,
                               .tp_as_buffer = &map_buffer,
                               .tp_as_sequence = &map_sequence};

/* ---- Region --------------------------------------------------------------------------------- */

PyDoc_STRVAR(region_doc,
             "A Region that this process has open. Closed by close(), the end of a with, or its last\n"
             "reference; maps of it go on. Closing is not releasing: the bytes stay until the process\n"
             "that allocated it has ended, or for a persistent one until it is released.");

static int region_is_open(const RegionObject *self) {
  if (!self->closed) return 1;
  PyErr_SetString(PyExc_ValueError, "the Region is closed");
  return 0;
}

/* Begins a call that lets other threads run: the handle is there until region_end. 0: it is closed. */
static int region_begin(RegionObject *self) {
  if (!region_is_open(self)) return 0;
  ++self->calls;
  return 1;
}

/* The call that ends last, of a Region that was closed, frees the handle. */
static void region_end(RegionObject *self) {
  if (--self->calls > 0 || !self->closed) return;
  cxlpool_region *const region = self->region;
  self->region = NULL;
  Py_BEGIN_ALLOW_THREADS;
  cxlpool_close(region);
  Py_END_ALLOW_THREADS;
}

static PyObject *region_close(RegionObject *self, PyObject *ignored) {
  (void)ignored;
  if (!self->closed) {
    self->closed = 1;
    ++self->calls;
    region_end(self);
  }
  Py_RETURN_NONE;
}

static void region_dealloc(RegionObject *self) {
  Py_XDECREF(region_close(self, NULL));
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *region_map(RegionObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"writable", "populate", "offset", "length", "reserve", "address", NULL};
  cxlpool_map_options options = CXLPOOL_MAP_OPTIONS_INIT;
  PyObject *writable = Py_None;
  uint64_t address = 0;
  if (!region_is_open(self) ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "|$OpO&O&O&O&:map", names, &writable,
                                   &options.populate, size_of, &options.offset_bytes, size_of,
                                   &options.length_bytes, size_of, &options.reserve_bytes, size_of,
                                   &address)) {
    return NULL;
  }
  if (writable != Py_None) {
    const int is_true = PyObject_IsTrue(writable);
    if (is_true < 0) return NULL;
    options.writable = is_true ? CXLPOOL_MAP_WRITABLE : CXLPOOL_MAP_READ_ONLY;
  }
  options.address = (void *)(uintptr_t)address;
  MapObject *const map = PyObject_New(MapObject, &MapType);
  if (map == NULL) return NULL;
  map->map = NULL;
  map->views = 0;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  if (!region_begin(self)) {
    Py_DECREF(map);
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_map_region(self->region, &options, &map->map, &error);
  Py_END_ALLOW_THREADS;
  region_end(self);
  if (code != 0) {
    Py_DECREF(map);
    return raise_error(&error);
  }
  PyTraceMalloc_Track(TRACE_DOMAIN, (uintptr_t)cxlpool_map_address(map->map),
                      cxlpool_map_size(map->map));
  return (PyObject *)map;
}

static PyObject *region_check(RegionObject *self, PyObject *ignored) {
  (void)ignored;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  if (!region_is_open(self)) return NULL;
  if (cxlpool_region_check(self->region, &error) != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

static PyObject *region_extents(RegionObject *self, PyObject *ignored) {
  (void)ignored;
  if (!region_is_open(self)) return NULL;
  PyObject *const list = PyList_New(0);
  const size_t count = cxlpool_region_extent_count(self->region);
  for (size_t i = 0; list != NULL && i < count; ++i) {
    cxlpool_extent extent = CXLPOOL_EXTENT_INIT;
    cxlpool_region_extent(self->region, i, &extent, NULL);
    PyObject *const item = Py_BuildValue("(iKKK)", (int)extent.fd, (unsigned long long)extent.offset_bytes,
                                         (unsigned long long)extent.length_bytes,
                                         (unsigned long long)extent.region_offset_bytes);
    if (item == NULL || PyList_Append(list, item) != 0) {
      Py_XDECREF(item);
      Py_DECREF(list);
      return NULL;
    }
    Py_DECREF(item);
  }
  return list;
}

static PyObject *region_exit(RegionObject *self, PyObject *ignored) {
  return region_close(self, ignored);
}

/* The fields of a Region's description, by name. */
static PyObject *info_field(const cxlpool_region_info *info, const char *name) {
  if (strcmp(name, "name") == 0) return PyUnicode_FromString(info->name);
  if (strcmp(name, "tag") == 0) return PyUnicode_FromString(info->tag);
  if (strcmp(name, "generation") == 0) return PyLong_FromUnsignedLongLong(info->generation);
  if (strcmp(name, "size") == 0) return PyLong_FromUnsignedLongLong(info->size_bytes);
  if (strcmp(name, "alignment") == 0) return PyLong_FromUnsignedLongLong(info->alignment_bytes);
  if (strcmp(name, "access") == 0) return PyUnicode_FromString(word_for(kAccess, info->access));
  if (strcmp(name, "mode") == 0) return PyUnicode_FromString(word_for(kMode, info->mode));
  if (strcmp(name, "coherence") == 0) {
    return PyUnicode_FromString(word_for(kCoherence, info->coherence));
  }
  if (info->numa_node < 0) Py_RETURN_NONE;
  return PyLong_FromLong(info->numa_node);
}

static PyObject *region_field(RegionObject *self, void *name) {
  return info_field(&self->info, name);
}

static PyObject *region_repr(RegionObject *self) {
  return PyUnicode_FromFormat("<cxlpool.Region %s, %llu bytes%s>", self->info.name,
                              (unsigned long long)self->info.size_bytes,
                              self->closed ? ", closed" : "");
}

static PyMethodDef region_methods[] = {
    {"map", (PyCFunction)(void (*)(void))region_map, METH_VARARGS | METH_KEYWORDS,
     "map(*, writable=None, populate=False, offset=0, length=0, reserve=0, address=0)\n\n"
     "Maps the Region, or length bytes from offset on, and returns the Map. writable: None is as it\n"
     "was opened. populate: every page is there when the call returns. reserve: address space kept\n"
     "for Map.extend."},
    {"check", (PyCFunction)region_check, METH_NOARGS,
     "Raises an Error where the host agent does not know of this use any more."},
    {"extents", (PyCFunction)region_extents, METH_NOARGS,
     "[(fd, offset, length, offset in the Region)]: for interfaces that take descriptors. They are\n"
     "the Region's, and closed with it."},
    {"close", (PyCFunction)region_close, METH_NOARGS, "Closes it. Maps of it go on."},
    {"__enter__", return_self, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)region_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef region_fields[] = {
    {"name", (getter)region_field, NULL, "regions/{region}", "name"},
    {"tag", (getter)region_field, NULL, "A UUID: its identity.", "tag"},
    {"generation", (getter)region_field, NULL, "Differs each time it is attached.", "generation"},
    {"size", (getter)region_field, NULL, "In bytes, as it was opened.", "size"},
    {"alignment", (getter)region_field, NULL, "Of parts that are mapped, in bytes.", "alignment"},
    {"access", (getter)region_field, NULL, "\"rw\" or \"ro\"", "access"},
    {"mode", (getter)region_field, NULL, "\"devdax\" or \"system-ram\"", "mode"},
    {"coherence", (getter)region_field, NULL, "\"software\" or \"hardware\"", "coherence"},
    {"numa_node", (getter)region_field, NULL, "Of a system-ram Region, or None.", "numa_node"},
    {NULL, NULL, NULL, NULL, NULL}};
static PyTypeObject RegionType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cxlpool.Region",
    .tp_basicsize = sizeof(RegionObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = region_doc,
    .tp_dealloc = (destructor)region_dealloc,
    .tp_repr = (reprfunc)region_repr,
    .tp_methods = region_methods,
    .tp_getset = region_fields};

static PyObject *make_region(cxlpool_region *region) {
  RegionObject *const self = PyObject_New(RegionObject, &RegionType);
  if (self == NULL) {
    cxlpool_close(region);
    return NULL;
  }
  const cxlpool_region_info empty = CXLPOOL_REGION_INFO_INIT;
  self->region = region;
  self->calls = 0;
  self->closed = 0;
  self->info = empty;
  cxlpool_region_describe(region, &self->info, NULL);
  return (PyObject *)self;
}

/* ---- Pool ----------------------------------------------------------------------------------- */

PyDoc_STRVAR(pool_doc,
             "Pool(socket=None, timeout=30)\n\n"
             "The connection to the host agent of this machine. timeout, in seconds, is for\n"
             "connecting and for each later call. Do not use it in a forked child.");

static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"socket", "timeout", NULL};
  cxlpool_connect_options options = CXLPOOL_CONNECT_OPTIONS_INIT;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zO&:Pool", names, &options.socket_path,
                                   milliseconds_of, &options.timeout_ms)) {
    return NULL;
  }
  PoolObject *const self = (PoolObject *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_connect(&options, &self->client, &error);
  Py_END_ALLOW_THREADS;
  if (code == 0) return (PyObject *)self;
  Py_DECREF(self);
  return raise_error(&error);
}

static void pool_dealloc(PoolObject *self) {
  cxlpool_disconnect(self->client);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *pool_allocate(PoolObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"size",       "name",    "sharing", "mode",       "max_extents",
                          "persistent", "open_to", "wait",    "request_id", NULL};
  cxlpool_allocate_options options = CXLPOOL_ALLOCATE_OPTIONS_INIT;
  const char *open_to = NULL;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O&|z$O&O&O&pzO&z:allocate", names, size_of, &options.size_bytes,
          &options.name, sharing_of, &options.sharing, mode_of, &options.mode, count_of,
          &options.max_extents, &options.persistent, &open_to, milliseconds_of, &options.wait_ms,
          &options.request_id)) {
    return NULL;
  }
  if (open_to != NULL && strcmp(open_to, "everybody") != 0) {
    PyErr_SetString(PyExc_ValueError, "open_to is None or \"everybody\"");
    return NULL;
  }
  options.open_to_everybody = open_to != NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_region *region = NULL;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_allocate(self->client, &options, &region, &error);
  Py_END_ALLOW_THREADS;
  return code == 0 ? make_region(region) : raise_error(&error);
}

static PyObject *pool_open(PoolObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name", "access", "wait", NULL};
  cxlpool_open_options options = CXLPOOL_OPEN_OPTIONS_INIT;
  const char *name = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O&$O&:open", names, &name, access_of,
                                   &options.access, milliseconds_of, &options.wait_ms)) {
    return NULL;
  }
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_region *region = NULL;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_open(self->client, name, &options, &region, &error);
  Py_END_ALLOW_THREADS;
  return code == 0 ? make_region(region) : raise_error(&error);
}

/* A name with a NUL in it is refused: its beginning may be that of another Region. */
static PyObject *pool_release(PoolObject *self, PyObject *value) {
  const char *name = NULL;
  if (!PyArg_Parse(value, "s:release", &name)) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_release(self->client, name, &error);
  Py_END_ALLOW_THREADS;
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

static PyObject *pool_list(PoolObject *self, PyObject *ignored) {
  (void)ignored;
  static const char *const kStates[] = {"unknown", "wanted",   "bound",   "online",
                                        "offline", "ejecting", "unbound", "release-blocked"};
  static const char *const kFields[] = {"name", "tag", "size", "access", "mode"};
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_list *list = NULL;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_list_regions(self->client, &list, &error);
  Py_END_ALLOW_THREADS;
  if (code != 0) return raise_error(&error);
  PyObject *const regions = PyList_New(0);
  for (size_t i = 0; regions != NULL && i < cxlpool_list_count(list); ++i) {
    cxlpool_region_info info = CXLPOOL_REGION_INFO_INIT;
    cxlpool_list_describe(list, i, &info, NULL);
    /* A library newer than this module may know more states. */
    const size_t states = sizeof kStates / sizeof kStates[0];
    const char *const state = kStates[(size_t)info.state < states ? (size_t)info.state : 0];
    PyObject *const line =
        Py_BuildValue("{s:s,s:N,s:I,s:s}", "state", state, "detaching",
                      PyBool_FromLong(info.detaching), "opens", info.opens, "state_reason",
                      info.state_reason);
    for (size_t f = 0; line != NULL && f < sizeof kFields / sizeof kFields[0]; ++f) {
      PyObject *const value = info_field(&info, kFields[f]);
      if (value != NULL) PyDict_SetItemString(line, kFields[f], value);
      Py_XDECREF(value);
    }
    if (line == NULL || PyErr_Occurred() || PyList_Append(regions, line) != 0) {
      Py_XDECREF(line);
      cxlpool_list_free(list);
      Py_DECREF(regions);
      return NULL;
    }
    Py_DECREF(line);
  }
  cxlpool_list_free(list);
  return regions;
}

static PyMethodDef pool_methods[] = {
    {"allocate", (PyCFunction)(void (*)(void))pool_allocate, METH_VARARGS | METH_KEYWORDS,
     "allocate(size, name=None, *, sharing=\"exclusive\", mode=\"devdax\", max_extents=0,\n"
     "         persistent=False, open_to=None, wait=120, request_id=None)\n\n"
     "Allocates a Region on this host, waits until it is online, and opens it. size: bytes, or as\n"
     "\"512MiB\". It lives as long as this process unless it is persistent. open_to=\"everybody\":\n"
     "users of this host who act for the same tenant may open it."},
    {"open", (PyCFunction)(void (*)(void))pool_open, METH_VARARGS | METH_KEYWORDS,
     "open(name, access=\"rw\", *, wait=0)\n\n"
     "Opens a Region that is attached to this host, by name or by tag."},
    {"release", (PyCFunction)pool_release, METH_O,
     "release(name)\n\nStarts its release; the memory goes when no one uses it."},
    {"list", (PyCFunction)pool_list, METH_NOARGS,
     "The Regions attached to this host, as dictionaries."},
    {NULL, NULL, 0, NULL}};
static PyTypeObject PoolType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cxlpool.Pool",
                                .tp_basicsize = sizeof(PoolObject),
                                .tp_flags = Py_TPFLAGS_DEFAULT,
                                .tp_doc = pool_doc,
                                .tp_new = pool_new,
                                .tp_dealloc = (destructor)pool_dealloc,
                                .tp_methods = pool_methods};

/* ---- The module ----------------------------------------------------------------------------- */

/* cxlpool.allocate(...): Pool().allocate(...). */
static PyObject *module_allocate(PyObject *module, PyObject *args, PyObject *kwargs) {
  (void)module;
  PyObject *const pool = PyObject_CallNoArgs((PyObject *)&PoolType);
  if (pool == NULL) return NULL;
  PyObject *const region = pool_allocate((PoolObject *)pool, args, kwargs);
  Py_DECREF(pool); /* The Region outlives it. */
  return region;
}

static PyObject *module_open(PyObject *module, PyObject *args, PyObject *kwargs) {
  (void)module;
  PyObject *const pool = PyObject_CallNoArgs((PyObject *)&PoolType);
  if (pool == NULL) return NULL;
  PyObject *const region = pool_open((PoolObject *)pool, args, kwargs);
  Py_DECREF(pool);
  return region;
}

/* For _safetensors.py: two buffers may be of two objects and yet of the same memory. */
static PyObject *module_overlap(PyObject *module, PyObject *args) {
  (void)module;
  Py_buffer one, other;
  if (!PyArg_ParseTuple(args, "y*y*:overlap", &one, &other)) return NULL;
  const uintptr_t begin = (uintptr_t)one.buf, other_begin = (uintptr_t)other.buf;
  const int overlap = one.len > 0 && other.len > 0 && begin < other_begin + (size_t)other.len &&
                      other_begin < begin + (size_t)one.len;
  PyBuffer_Release(&one);
  PyBuffer_Release(&other);
  return PyBool_FromLong(overlap);
}

static PyMethodDef module_methods[] = {
    {"allocate", (PyCFunction)(void (*)(void))module_allocate, METH_VARARGS | METH_KEYWORDS,
     "Pool().allocate(...)"},
    {"open", (PyCFunction)(void (*)(void))module_open, METH_VARARGS | METH_KEYWORDS,
     "Pool().open(...)"},
    {"overlap", module_overlap, METH_VARARGS, "Whether two buffers have bytes in common."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "cxlpool._cxlpool", "What the package cxlpool is made of.",
    -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__cxlpool(void) {
  if (PyType_Ready(&PoolType) < 0 || PyType_Ready(&RegionType) < 0 || PyType_Ready(&MapType) < 0) {
    return NULL;
  }
  PyObject *const m = PyModule_Create(&module);
  if (m == NULL) return NULL;
  g_error = PyErr_NewExceptionWithDoc(
      "cxlpool.Error",
      "What the pool, the host agent or the kernel refused: code (of google.rpc.Code), reason, "
      "message, remedy, errno.",
      PyExc_RuntimeError, NULL);
  if (g_error == NULL || PyModule_AddObjectRef(m, "Error", g_error) < 0 ||
      PyModule_AddObjectRef(m, "Pool", (PyObject *)&PoolType) < 0 ||
      PyModule_AddObjectRef(m, "Region", (PyObject *)&RegionType) < 0 ||
      PyModule_AddObjectRef(m, "Map", (PyObject *)&MapType) < 0 || add_directory_types(m) < 0 ||
      add_copier_types(m) < 0 ||
      PyModule_AddIntConstant(m, "TRACE_DOMAIN", TRACE_DOMAIN) < 0 ||
      PyModule_AddStringConstant(m, "__version__", cxlpool_version()) < 0) {
    Py_DECREF(m);
    return NULL;
  }
  return m;
}
