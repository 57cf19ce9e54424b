/* cxlpool.Directory and cxlpool.Object: cxlpool/directory.h as objects of Python.
 *
 * An Object is a buffer, as a Map is. One that is borrowed shows its bytes read-only, and is not
 * closed while there are views. One that is being made shows them writable, is not sealed while
 * there are views, and shows none afterwards: from then on the Directory may use its bytes again.
 */
#include "cxlpool/directory.h"

#include "libpool/python/module.h"

typedef struct {
  PyObject_HEAD
  cxlpool_directory *directory;
  Py_ssize_t calls; /* Of all threads, that use `directory`. */
  int closed;       /* No more calls begin. */
} DirectoryObject;

typedef enum { kBorrowed, kRoom, kSealing, kSealed } ObjectState;

typedef struct {
  PyObject_HEAD
  cxlpool_object *object; /* NULL: closed. */
  Py_ssize_t views;       /* Buffers that are out. */
  ObjectState state;
} ObjectObject;

static PyTypeObject DirectoryType, ObjectType;

/* ---- Arguments ------------------------------------------------------------------------------ */

/* A name. NULL: raised. It lives as long as `value`. */
static const char *name_of(PyObject *value) {
  if (!PyUnicode_Check(value)) {
    PyErr_Format(PyExc_TypeError, "the name of an object is text, not %s", Py_TYPE(value)->tp_name);
    return NULL;
  }
  Py_ssize_t length = 0;
  const char *const name = PyUnicode_AsUTF8AndSize(value, &length);
  if (name == NULL || strlen(name) == (size_t)length) return name;
  PyErr_SetString(PyExc_ValueError, "the name of an object has no NUL");
  return NULL;
}

/* A whole number from 0 to INT32_MAX. 1: done. */
static int count_of(PyObject *value, void *to) {
  const long number = PyLong_AsLong(value);
  if (number == -1 && PyErr_Occurred()) return 0;
  if (number < 0 || number > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%ld is not from 0 to %d", number, INT32_MAX);
    return 0;
  }
  *(uint32_t *)to = (uint32_t)number;
  return 1;
}

/* The number of a partition; None is -1. 1: done. */
static int partition_of(PyObject *value, void *to) {
  *(int32_t *)to = -1;
  uint32_t number = 0;
  if (value == Py_None) return 1;
  if (!count_of(value, &number)) return 0;
  *(int32_t *)to = (int32_t)number;
  return 1;
}

static int is_unknown(const cxlpool_error *error) {
  return strcmp(error->reason, "OBJECT_UNKNOWN") == 0;
}

/* ---- Object --------------------------------------------------------------------------------- */

PyDoc_STRVAR(object_doc,
             "An object of a Directory, in place: a buffer.\n\n"
             "From Directory.borrow it is read-only, and stays as it is until it is closed, also when\n"
             "it is removed or replaced. From Directory.create_object it is writable until seal(),\n"
             "which makes it visible, and ends its use as a buffer; closed without, it is gone.\n"
             "close(), or the end of a with, is refused with BufferError while there are views.");

static PyObject *make_object(cxlpool_object *object, ObjectState state) {
  ObjectObject *const self = PyObject_New(ObjectObject, &ObjectType);
  if (self == NULL) {
    cxlpool_object_free(object);
    return NULL;
  }
  self->object = object;
  self->views = 0;
  self->state = state;
  return (PyObject *)self;
}

static int object_is_open(const ObjectObject *self) {
  if (self->object != NULL) return 1;
  PyErr_SetString(PyExc_ValueError, "the object is closed");
  return 0;
}

/* 0: no other thread seals it. */
static int object_is_sealing(const ObjectObject *self) {
  if (self->state != kSealing) return 0;
  PyErr_SetString(PyExc_BufferError, "another thread seals the object");
  return 1;
}

/* -1: refused. */
static int object_free(ObjectObject *self) {
  if (refuse_with_views(self->views, "object") != 0 || object_is_sealing(self)) return -1;
  cxlpool_object *const object = self->object;
  self->object = NULL;
  Py_BEGIN_ALLOW_THREADS;
  cxlpool_object_free(object);
  Py_END_ALLOW_THREADS;
  return 0;
}

static void object_dealloc(ObjectObject *self) {
  object_free(self); /* A view and a call have a reference: there are none. */
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *object_close(ObjectObject *self, PyObject *ignored) {
  (void)ignored;
  if (object_free(self) != 0) return NULL;
  Py_RETURN_NONE;
}

/* While it runs there are no views, and none are made: nothing of this process stores to the bytes. */
static PyObject *object_seal(ObjectObject *self, PyObject *ignored) {
  (void)ignored;
  if (!object_is_open(self) || object_is_sealing(self)) return NULL;
  if (self->state == kRoom && refuse_with_views(self->views, "object") != 0) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  const ObjectState before = self->state;
  int code = 0;
  self->state = kSealing;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_object_seal(self->object, &error);
  Py_END_ALLOW_THREADS;
  /* Where it met lost bytes it may be visible, and is changed no more. */
  const int is_room = before == kRoom && code != 0 && code != CXLPOOL_DATA_LOSS &&
                      strcmp(error.reason, "REVOKED") != 0;
  self->state = before == kBorrowed ? kBorrowed : is_room ? kRoom : kSealed;
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

static int object_getbuffer(ObjectObject *self, Py_buffer *view, int flags) {
  view->obj = NULL;
  if (!object_is_open(self) || object_is_sealing(self)) return -1;
  if (self->state == kSealed) {
    PyErr_SetString(PyExc_BufferError, "the object is sealed: borrow it to look at it");
    return -1;
  }
  if (PyBuffer_FillInfo(view, (PyObject *)self, cxlpool_object_bytes(self->object),
                        (Py_ssize_t)cxlpool_object_size(self->object), self->state == kBorrowed,
                        flags) != 0) {
    return -1;
  }
  ++self->views;
  return 0;
}

static void object_releasebuffer(ObjectObject *self, Py_buffer *view) {
  (void)view;
  --self->views;
}

static Py_ssize_t object_length(ObjectObject *self) {
  return object_is_open(self) ? (Py_ssize_t)cxlpool_object_size(self->object) : -1;
}

static PyObject *object_sealed(ObjectObject *self, void *ignored) {
  (void)ignored;
  return PyBool_FromLong(self->state == kBorrowed || self->state == kSealed);
}

static PyObject *object_closed(ObjectObject *self, void *ignored) {
  (void)ignored;
  return PyBool_FromLong(self->object == NULL);
}

static PyMethodDef object_methods[] = {
    {"seal", (PyCFunction)object_seal, METH_NOARGS,
     "Makes it visible to every process of every host. BufferError: there are views of it."},
    {"close", (PyCFunction)object_close, METH_NOARGS,
     "Gives it back. BufferError: there are views of it."},
    {"__enter__", return_self, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)object_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef object_fields[] = {
    {"sealed", (getter)object_sealed, NULL, "Whether it is visible, and changes no more.", NULL},
    {"closed", (getter)object_closed, NULL, "Whether it was given back.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyBufferProcs object_buffer = {(getbufferproc)object_getbuffer,
                                      (releasebufferproc)object_releasebuffer};
static PySequenceMethods object_sequence = {.sq_length = (lenfunc)object_length};
static PyTypeObject ObjectType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cxlpool.Object",
    .tp_basicsize = sizeof(ObjectObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = object_doc,
    .tp_dealloc = (destructor)object_dealloc,
    .tp_methods = object_methods,
    .tp_getset = object_fields,
    .tp_as_buffer = &object_buffer,
    .tp_as_sequence = &object_sequence};

/* ---- Directory ------------------------------------------------------------------------------ */

PyDoc_STRVAR(directory_doc,
             "Directory(map, partition=None, take_over=False)\n\n"
             "Opens the Directory of named objects that the Map begins with. partition: the one that\n"
             "this process owns from now on, and writes; None only reads, and borrows where objects\n"
             "are kept. take_over: also where another host owned it, which has the Region no longer.\n"
             "Any number of threads may use it. It keeps what is mapped, and objects keep it.");

/* Begins a call: the handle is there until directory_end. 0: it is closed. */
static int directory_begin(DirectoryObject *self) {
  if (!self->closed) {
    ++self->calls;
    return 1;
  }
  PyErr_SetString(PyExc_ValueError, "the Directory is closed");
  return 0;
}

/* The call that ends last, of a Directory that was closed, frees the handle. */
static void directory_end(DirectoryObject *self) {
  if (--self->calls > 0 || !self->closed) return;
  cxlpool_directory *const directory = self->directory;
  self->directory = NULL;
  Py_BEGIN_ALLOW_THREADS;
  cxlpool_directory_close(directory);
  Py_END_ALLOW_THREADS;
}

static PyObject *directory_close(DirectoryObject *self, PyObject *ignored) {
  (void)ignored;
  if (!self->closed) {
    self->closed = 1;
    ++self->calls;
    directory_end(self);
  }
  Py_RETURN_NONE;
}

static void directory_dealloc(DirectoryObject *self) {
  Py_XDECREF(directory_close(self, NULL));
  Py_TYPE(self)->tp_free((PyObject *)self);
}

/* The map counts as viewed meanwhile: no other thread unmaps it. */
static PyObject *directory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"map", "partition", "take_over", NULL};
  cxlpool_directory_options options = CXLPOOL_DIRECTORY_OPTIONS_INIT;
  MapObject *map = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O&p:Directory", names, &MapType, &map,
                                   partition_of, &options.partition, &options.take_over) ||
      !map_is_open(map)) {
    return NULL;
  }
  DirectoryObject *const self = (DirectoryObject *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  ++map->views;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_open(map->map, &options, &self->directory, &error);
  Py_END_ALLOW_THREADS;
  --map->views;
  if (code == 0) return (PyObject *)self;
  Py_DECREF(self);
  return raise_error(&error);
}

static PyObject *directory_create(PyObject *ignored, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"map",           "partitions", "entries", "pins",
                          "keeps_objects", "replace",    NULL};
  cxlpool_directory_create_options options = CXLPOOL_DIRECTORY_CREATE_OPTIONS_INIT;
  MapObject *map = NULL;
  (void)ignored;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O&O&O&pp:create", names, &MapType, &map,
                                   count_of, &options.partitions, count_of, &options.entries,
                                   count_of, &options.pins, &options.keeps_objects,
                                   &options.replace) ||
      !map_is_open(map)) {
    return NULL;
  }
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  ++map->views;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_create(map->map, &options, &error);
  Py_END_ALLOW_THREADS;
  --map->views;
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

static PyObject *directory_put(DirectoryObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name", "buffer", NULL};
  const char *name = NULL;
  Py_buffer buffer;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sy*:put", names, &name, &buffer)) return NULL;
  if (!directory_begin(self)) {
    PyBuffer_Release(&buffer);
    return NULL;
  }
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_put(self->directory, name, buffer.buf, (size_t)buffer.len, &error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  PyBuffer_Release(&buffer);
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

/* The object of that name as bytes, in a call that has begun. It is found, room is made, and it is
 * copied; where it was replaced by a larger one in between, again. 0; a code, with `error`; or -1,
 * where Python has no memory. */
static int get_whole(DirectoryObject *self, const char *name, PyObject **bytes,
                     cxlpool_error *error) {
  enum { kTries = 8 };
  cxlpool_object_info info = CXLPOOL_OBJECT_INFO_INIT;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_find(self->directory, name, &info, error);
  Py_END_ALLOW_THREADS;
  if (code != 0) return code;
  size_t size = (size_t)info.size_bytes;
  for (int i = 0; i < kTries; ++i) {
    const size_t room = size;
    *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (*bytes == NULL) return -1;
    char *const into = PyBytes_AS_STRING(*bytes);
    Py_BEGIN_ALLOW_THREADS;
    code = cxlpool_directory_get(self->directory, name, into, room, &size, error);
    Py_END_ALLOW_THREADS;
    if (code == 0) {
      return size == room || _PyBytes_Resize(bytes, (Py_ssize_t)size) == 0 ? 0 : -1;
    }
    Py_CLEAR(*bytes);
    if (code != CXLPOOL_OUT_OF_RANGE) return code;
  }
  error->code = CXLPOOL_ABORTED;
  snprintf(error->reason, sizeof error->reason, "OBJECT_CHANGES");
  snprintf(error->message, sizeof error->message,
           "the object was replaced by a larger one each time it was looked at: %d times", kTries);
  snprintf(error->remedy, sizeof error->remedy, "get it again");
  return error->code;
}

static PyObject *directory_get(DirectoryObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name", "default", NULL};
  const char *name = NULL;
  PyObject *otherwise = NULL, *bytes = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O:get", names, &name, &otherwise) ||
      !directory_begin(self)) {
    return NULL;
  }
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  const int code = get_whole(self, name, &bytes, &error);
  directory_end(self);
  if (code == 0) return bytes;
  if (code == -1) return NULL;
  return otherwise != NULL && is_unknown(&error) ? Py_NewRef(otherwise) : raise_error(&error);
}

static PyObject *directory_get_into(DirectoryObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name", "buffer", NULL};
  const char *name = NULL;
  Py_buffer buffer;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sw*:get_into", names, &name, &buffer)) {
    return NULL;
  }
  if (!directory_begin(self)) {
    PyBuffer_Release(&buffer);
    return NULL;
  }
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  size_t size = 0;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_get(self->directory, name, buffer.buf, (size_t)buffer.len, &size,
                               &error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  PyBuffer_Release(&buffer);
  return code == 0 ? PyLong_FromSize_t(size) : raise_error(&error);
}

static PyObject *directory_borrow(DirectoryObject *self, PyObject *value) {
  const char *const name = name_of(value);
  if (name == NULL || !directory_begin(self)) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_object *object = NULL;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_borrow(self->directory, name, &object, &error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  return code == 0 ? make_object(object, kBorrowed) : raise_error(&error);
}

static PyObject *directory_create_object(DirectoryObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name", "size", NULL};
  const char *name = NULL;
  uint64_t size = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO&:create_object", names, &name, size_of,
                                   &size) ||
      !directory_begin(self)) {
    return NULL;
  }
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_object *object = NULL;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_create_object(self->directory, name, size, &object, &error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  return code == 0 ? make_object(object, kRoom) : raise_error(&error);
}

static PyObject *directory_remove(DirectoryObject *self, PyObject *value) {
  const char *const name = name_of(value);
  if (name == NULL || !directory_begin(self)) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_remove(self->directory, name, &error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

/* Fills `info` with the object of that name. 0, a code with `error`, or -1: raised. */
static int find(DirectoryObject *self, PyObject *value, cxlpool_object_info *info,
                cxlpool_error *error) {
  const char *const name = name_of(value);
  if (name == NULL || !directory_begin(self)) return -1;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_find(self->directory, name, info, error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  return code;
}

static PyObject *directory_find(DirectoryObject *self, PyObject *value) {
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_object_info info = CXLPOOL_OBJECT_INFO_INIT;
  const int code = find(self, value, &info, &error);
  if (code != 0) return code < 0 ? NULL : raise_error(&error);
  return Py_BuildValue("{s:K,s:K,s:I}", "size", (unsigned long long)info.size_bytes, "generation",
                       (unsigned long long)info.generation, "partition", info.partition);
}

static int directory_contains(DirectoryObject *self, PyObject *value) {
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_object_info info = CXLPOOL_OBJECT_INFO_INIT;
  const int code = find(self, value, &info, &error);
  if (code == 0) return 1;
  if (code > 0 && is_unknown(&error)) return 0;
  if (code > 0) raise_error(&error);
  return -1;
}

static PyObject *directory_describe(DirectoryObject *self, PyObject *ignored) {
  (void)ignored;
  if (!directory_begin(self)) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  cxlpool_directory_info info = CXLPOOL_DIRECTORY_INFO_INIT;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_describe(self->directory, &info, &error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  if (code != 0) return raise_error(&error);
  PyObject *const partition =
      info.partition < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(info.partition);
  return Py_BuildValue(
      "{s:I,s:I,s:N,s:N,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "partitions", info.partitions, "entries",
      info.entries, "keeps_objects", PyBool_FromLong(info.keeps_objects), "partition", partition,
      "objects", (unsigned long long)info.objects, "object_bytes",
      (unsigned long long)info.object_bytes, "free_bytes", (unsigned long long)info.free_bytes,
      "largest_free_bytes", (unsigned long long)info.largest_free_bytes, "removed_objects",
      (unsigned long long)info.removed_objects, "removed_bytes",
      (unsigned long long)info.removed_bytes, "borrowed_objects",
      (unsigned long long)info.borrowed_objects);
}

static PyObject *directory_check(DirectoryObject *self, PyObject *ignored) {
  (void)ignored;
  if (!directory_begin(self)) return NULL;
  cxlpool_error error = CXLPOOL_ERROR_INIT;
  int code = 0;
  Py_BEGIN_ALLOW_THREADS;
  code = cxlpool_directory_check(self->directory, &error);
  Py_END_ALLOW_THREADS;
  directory_end(self);
  if (code != 0) return raise_error(&error);
  Py_RETURN_NONE;
}

static PyObject *directory_closed(DirectoryObject *self, void *ignored) {
  (void)ignored;
  return PyBool_FromLong(self->closed);
}

static PyMethodDef directory_methods[] = {
    {"create", (PyCFunction)(void (*)(void))directory_create,
     METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "create(map, partitions=1, entries=65536, pins=64, keeps_objects=False, replace=False)\n\n"
     "Makes a Directory of all of the map; of several processes, one does this. entries and pins\n"
     "are those of each partition: twice the objects that it is to hold, and how many its owner\n"
     "may have borrowed. keeps_objects: nothing is removed, and who only reads may borrow."},
    {"put", (PyCFunction)(void (*)(void))directory_put, METH_VARARGS | METH_KEYWORDS,
     "put(name, buffer)\n\n"
     "Puts an object into the own partition, in place of one of that name that it has."},
    {"get", (PyCFunction)(void (*)(void))directory_get, METH_VARARGS | METH_KEYWORDS,
     "get(name[, default])\n\n"
     "A copy of the object's bytes. default is for an object that is not there, which is an Error\n"
     "(OBJECT_UNKNOWN) otherwise."},
    {"get_into", (PyCFunction)(void (*)(void))directory_get_into, METH_VARARGS | METH_KEYWORDS,
     "get_into(name, buffer)\n\n"
     "Copies the object into a buffer that has room for it, and returns its size."},
    {"borrow", (PyCFunction)directory_borrow, METH_O,
     "borrow(name)\n\nThe object in place, as a read-only Object, until that is closed."},
    {"create_object", (PyCFunction)(void (*)(void))directory_create_object,
     METH_VARARGS | METH_KEYWORDS,
     "create_object(name, size)\n\n"
     "Room for an object, as a writable Object that is filled and then sealed. Until then no one\n"
     "else sees it. size: bytes, or as \"512MiB\"."},
    {"remove", (PyCFunction)directory_remove, METH_O,
     "remove(name)\n\nRemoves an object of the own partition. Who has it borrowed keeps it."},
    {"find", (PyCFunction)directory_find, METH_O,
     "find(name)\n\nThe object's size, generation and partition, as a dictionary."},
    {"describe", (PyCFunction)directory_describe, METH_NOARGS,
     "What the Directory is made of, and what the own partition holds, as a dictionary."},
    {"check", (PyCFunction)directory_check, METH_NOARGS,
     "Raises an Error where the Directory or its Region is not the one that was opened."},
    {"close", (PyCFunction)directory_close, METH_NOARGS,
     "Closes it. Objects of it go on; with the last of them, and the last call of another thread,\n"
     "the partition is free for another process."},
    {"__enter__", return_self, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)directory_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef directory_fields[] = {
    {"closed", (getter)directory_closed, NULL, "Whether it is closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PySequenceMethods directory_sequence = {.sq_contains = (objobjproc)directory_contains};
static PyTypeObject DirectoryType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cxlpool.Directory",
                                     .tp_basicsize = sizeof(DirectoryObject),
                                     .tp_flags = Py_TPFLAGS_DEFAULT,
                                     .tp_doc = directory_doc,
                                     .tp_new = directory_new,
                                     .tp_dealloc = (destructor)directory_dealloc,
                                     .tp_methods = directory_methods,
                                     .tp_getset = directory_fields,
                                     .tp_as_sequence = &directory_sequence};

int add_directory_types(PyObject *module) {
  if (PyType_Ready(&DirectoryType) < 0 || PyType_Ready(&ObjectType) < 0 ||
      PyModule_AddObjectRef(module, "Directory", (PyObject *)&DirectoryType) < 0) {
    return -1;
  }
  return PyModule_AddObjectRef(module, "Object", (PyObject *)&ObjectType);
}
