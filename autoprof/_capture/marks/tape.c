/* The buffer of a step's marks. */

#include "marks.h"

enum { LEAST_ROOM = 256, KEPT_ROOM = 1 << 16 };

static void tape_forget(Tape *self) {
    PyObject **objects = self->objects;
    Py_ssize_t count = self->count;
    self->objects = NULL;
    self->count = 0;
    if (self->room > KEPT_ROOM) { /* one long step is no reason to hold its memory for the rest of the run */
        PyMem_Free(self->codes);
        PyMem_Free(self->values);
        self->codes = self->values = NULL;
        self->room = 0;
    }
    if (objects != NULL) { /* last: what dies here may make marks */
        while (count--)
            Py_XDECREF(objects[count]);
        PyMem_Free(objects);
    }
}

static int grow(void **items, Py_ssize_t count, size_t size) {
    void *grown = PyMem_Realloc(*items, count * size);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *items = grown;
    return 0;
}

int tape_grow(Tape *self) {
    Py_ssize_t room = self->room ? 2 * self->room : LEAST_ROOM;
    if (grow((void **)&self->codes, room, sizeof *self->codes) < 0 ||
        grow((void **)&self->values, room, sizeof *self->values) < 0 ||
        (self->objects != NULL && grow((void **)&self->objects, room, sizeof *self->objects) < 0))
        return -1;
    self->room = room;
    return 0;
}

int append_reading(Tape *self, long long code, PyObject *reading) {
    int above = 1;
    long long value = PyLong_CheckExact(reading) ? PyLong_AsLongLongAndOverflow(reading, &above) : 0;
    if (!above)
        return append_ns(self, code, value);
    if (self->count == self->room && tape_grow(self) < 0)
        return -1;
    if (self->objects == NULL) {
        if ((self->objects = PyMem_Calloc(self->room, sizeof *self->objects)) == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (append_ns(self, code, 0) < 0)
        return -1;
    Py_INCREF(reading);
    self->objects[self->count - 1] = reading;
    return 0;
}

static PyObject *reading_at(Tape *self, Py_ssize_t at) {
    if (self->objects != NULL && self->objects[at] != NULL) {
        Py_INCREF(self->objects[at]);
        return self->objects[at];
    }
    return PyLong_FromLongLong(self->values[at]);
}

/* As list.extend, of one mark or of two. */
static PyObject *tape_extend(Tape *self, PyObject *marks) {
    if (!PyTuple_CheckExact(marks) || PyTuple_GET_SIZE(marks) % 2)
        return PyErr_Format(PyExc_TypeError, "marks: %R is no tuple of codes and readings", marks);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marks); i += 2) {
        long long code = PyLong_AsLongLong(PyTuple_GET_ITEM(marks, i));
        if ((code == -1 && PyErr_Occurred()) || append_reading(self, code, PyTuple_GET_ITEM(marks, i + 1)) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* Return the step's codes and readings, as bytes where they are integers, and begin another step. */
static PyObject *tape_take(Tape *self, PyObject *serial) {
    Py_ssize_t count = self->count, size = count * (Py_ssize_t)sizeof(long long);
    PyObject *codes = PyBytes_FromStringAndSize((char *)self->codes, size), *readings, *taken;
    if (self->objects == NULL)
        readings = PyBytes_FromStringAndSize((char *)self->values, size);
    else if ((readings = PyList_New(count)) != NULL)
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *reading = reading_at(self, i);
            if (reading == NULL) {
                Py_CLEAR(readings);
                break;
            }
            PyList_SET_ITEM(readings, i, reading);
        }
    if (codes == NULL || readings == NULL || (taken = PyTuple_Pack(2, codes, readings)) == NULL) {
        Py_XDECREF(codes);
        Py_XDECREF(readings);
        return NULL;
    }
    Py_DECREF(codes);
    Py_DECREF(readings);
    tape_forget(self);
    self->ordinal = 0;
    Py_INCREF(serial);
    Py_XSETREF(self->serial, serial);
    return taken;
}

static PyObject *tape_clear_marks(Tape *self, PyObject *Py_UNUSED(none)) {
    tape_forget(self);
    Py_RETURN_NONE;
}

static PyObject *tape_next_ordinal(Tape *self, PyObject *Py_UNUSED(none)) {
    return PyLong_FromLongLong(self->ordinal += self->apart);
}

static Py_ssize_t tape_length(Tape *self) {
    return 2 * self->count;
}

static PyObject *tape_item(Tape *self, Py_ssize_t at) {
    if (at < 0 || at >= 2 * self->count)
        return PyErr_Format(PyExc_IndexError, "%zd", at);
    return at % 2 ? reading_at(self, at / 2) : PyLong_FromLongLong(self->codes[at / 2]);
}

static int tape_set_item(Tape *self, Py_ssize_t at, PyObject *code) {
    long long value = code == NULL ? -1 : PyLong_AsLongLong(code);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (code == NULL || at % 2 || at < 0 || at >= 2 * self->count) {
        PyErr_Format(PyExc_IndexError, "%zd: a code is set, and nothing else", at);
        return -1;
    }
    self->codes[at / 2] = value;
    return 0;
}

static int tape_init(Tape *self, PyObject *args, PyObject *named) {
    static char *names[] = {"apart", "serial", NULL};
    PyObject *serial;
    if (!PyArg_ParseTupleAndKeywords(args, named, "LO:Tape", names, &self->apart, &serial))
        return -1;
    Py_INCREF(serial);
    Py_XSETREF(self->serial, serial);
    return 0;
}

static int tape_traverse(Tape *self, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; self->objects != NULL && i < self->count; i++)
        Py_VISIT(self->objects[i]);
    return 0;
}

static int tape_clear(Tape *self) {
    tape_forget(self);
    return 0;
}

static void tape_dealloc(Tape *self) {
    PyObject_GC_UnTrack(self);
    tape_forget(self);
    PyMem_Free(self->codes);
    PyMem_Free(self->values);
    Py_CLEAR(self->serial);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PySequenceMethods tape_sequence = {
    .sq_length = (lenfunc)tape_length,
    .sq_item = (ssizeargfunc)tape_item,
    .sq_ass_item = (ssizeobjargproc)tape_set_item,
};

static PyMethodDef tape_methods[] = {
    {"extend", (PyCFunction)tape_extend, METH_O, "extend(marks): append a tuple of codes and readings."},
    {"take", (PyCFunction)tape_take, METH_O, "take(serial): return codes and readings, and begin the step of this serial."},
    {"clear", (PyCFunction)tape_clear_marks, METH_NOARGS, "clear(): forget the marks."},
    {"next_ordinal", (PyCFunction)tape_next_ordinal, METH_NOARGS, "next_ordinal(): return that of a new call."},
    {NULL},
};

PyTypeObject TapeType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "autoprof._capture.marks._c.Tape",
    .tp_doc = "Tape(apart, serial): a step's marks; ordinals of its calls lie that far apart.",
    .tp_basicsize = sizeof(Tape),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)tape_init,
    .tp_as_sequence = &tape_sequence,
    .tp_methods = tape_methods,
    .tp_traverse = (traverseproc)tape_traverse,
    .tp_clear = (inquiry)tape_clear,
    .tp_dealloc = (destructor)tape_dealloc,
};
