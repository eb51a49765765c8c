/* MarkBuffer: the marks of the open step. */

#include "native.h"

enum { MIN_CAPACITY = 256, MAX_KEPT_CAPACITY = 1 << 16, BLOCK_VALUES = 1 << 15 };

/* The readings are written where they stay: `values` points into `block`, a bytes object, behind the readings of the steps
before. A new object for the readings of each step took 40 µs: after a backward pass the allocator first sorts the memory
that the pass has freed. A block serves again when the steps in it are resolved. */

/* What take() and clear() detach from a buffer. */
typedef struct {
    long long *codes, *values;
    PyObject **objects, *block;
    Py_ssize_t count, codes_capacity;
} arrays;

static arrays detach(MarkBuffer *self) {
    arrays marks = {self->codes, self->values, self->objects, Py_XNewRef(self->block), self->count, self->codes_capacity};
    self->block_used += self->count;
    self->codes = self->values = NULL;
    self->objects = NULL;
    self->count = self->capacity = self->codes_capacity = 0;
    return marks;
}

/* Release the readings, and give the memory back to the buffer unless marks have been appended meanwhile. The memory of
an exceptionally long step is freed. */
static void release(MarkBuffer *self, arrays *marks) {
    if (self->codes_capacity == 0 && marks->codes_capacity <= MAX_KEPT_CAPACITY) {
        self->codes = marks->codes;
        self->codes_capacity = marks->codes_capacity;
    } else
        PyMem_Free(marks->codes);
    Py_XDECREF(marks->block);
    if (marks->objects != NULL) { /* last: the destructor of a reading may run Python code */
        for (Py_ssize_t i = 0; i < marks->count; i++)
            Py_XDECREF(marks->objects[i]);
        PyMem_Free(marks->objects);
    }
}

static int resize(void **items, Py_ssize_t count, size_t size) {
    void *resized = PyMem_Realloc(*items, count * size);
    if (resized == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *items = resized;
    return 0;
}

/* Return a block in which no reading is used any more, or a new one. Blocks are kept: the allocator would put new ones
between the program's own memory, and the process would grow. */
static PyObject *find_block(MarkBuffer *self, Py_ssize_t size) {
    PyObject **place = NULL;
    for (int i = 0; i < KEPT_BLOCKS; i++) {
        PyObject *block = self->blocks[i];
        if (block == NULL)
            place = self->blocks + i;
        else if (Py_REFCNT(block) == 1 && PyBytes_GET_SIZE(block) == size)
            return Py_NewRef(block);
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (place != NULL && size == BLOCK_VALUES * (Py_ssize_t)sizeof *self->values)
        *place = Py_XNewRef(made);
    return made;
}

/* Write the open step's readings to a block with this much room. */
static int use_block(MarkBuffer *self, Py_ssize_t room) {
    PyObject *block = find_block(self, (room > BLOCK_VALUES ? room : BLOCK_VALUES) * (Py_ssize_t)sizeof *self->values);
    if (block == NULL)
        return -1;
    long long *values = (long long *)PyBytes_AS_STRING(block);
    if (self->count)
        memcpy(values, self->values, (size_t)self->count * sizeof *values);
    self->block_used = 0;
    self->values = values;
    Py_XSETREF(self->block, block);
    return 0;
}

int mark_buffer_grow(MarkBuffer *self) {
    Py_ssize_t capacity = self->capacity ? 2 * self->capacity : MIN_CAPACITY;
    Py_ssize_t room = self->block == NULL ? 0 : PyBytes_GET_SIZE(self->block) / (Py_ssize_t)sizeof *self->values - self->block_used;
    if (self->codes_capacity < capacity) {
        if (resize((void **)&self->codes, capacity, sizeof *self->codes) < 0)
            return -1;
        self->codes_capacity = capacity;
    }
    if (room < capacity) {
        if (use_block(self, capacity) < 0)
            return -1;
    } else if (self->values == NULL)
        self->values = (long long *)PyBytes_AS_STRING(self->block) + self->block_used;
    if (self->objects != NULL && resize((void **)&self->objects, capacity, sizeof *self->objects) < 0)
        return -1;
    self->capacity = capacity;
    return 0;
}

/* Append a mark with any reading. Runs no Python code. */
int mark_buffer_append(MarkBuffer *self, long long code, PyObject *reading) {
    int overflow = 1;
    long long value = PyLong_CheckExact(reading) ? PyLong_AsLongLongAndOverflow(reading, &overflow) : 0;
    if (!overflow)
        return mark_buffer_append_ns(self, code, value);
    if (self->count == self->capacity && mark_buffer_grow(self) < 0)
        return -1;
    if (self->objects == NULL && (self->objects = PyMem_Calloc(self->capacity, sizeof *self->objects)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (mark_buffer_append_ns(self, code, 0) < 0)
        return -1;
    self->objects[self->count - 1] = Py_NewRef(reading);
    return 0;
}

static PyObject *reading_at(PyObject **objects, long long *values, Py_ssize_t at) {
    return objects != NULL && objects[at] != NULL ? Py_NewRef(objects[at]) : PyLong_FromLongLong(values[at]);
}

static PyObject *mark_buffer_extend(PyObject *op, PyObject *marks) {
    if (!PyTuple_CheckExact(marks) || PyTuple_GET_SIZE(marks) % 2)
        return PyErr_Format(PyExc_TypeError, "marks must be a tuple of alternating codes and readings, not %R", marks);
    if (((MarkBuffer *)op)->suspended)
        Py_RETURN_NONE;
    if (((MarkBuffer *)op)->count >= ((MarkBuffer *)op)->limit) {
        ((MarkBuffer *)op)->dropped++;
        Py_RETURN_NONE;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marks); i += 2) {
        long long code = PyLong_AsLongLong(PyTuple_GET_ITEM(marks, i));
        if ((code == -1 && PyErr_Occurred()) ||
            mark_buffer_append((MarkBuffer *)op, code, PyTuple_GET_ITEM(marks, i + 1)) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* Return the readings: a part of their block, or a list. */
static PyObject *readings_of(arrays *marks) {
    if (marks->count == 0)
        return PyBytes_FromStringAndSize(NULL, 0);
    if (marks->objects == NULL) {
        Py_ssize_t begin = (char *)marks->values - PyBytes_AS_STRING(marks->block);
        PyObject *whole = PyMemoryView_FromObject(marks->block);
        PyObject *part = whole == NULL ? NULL
                                       : PySequence_GetSlice(whole, begin, begin + marks->count * (Py_ssize_t)sizeof *marks->values);
        Py_XDECREF(whole);
        return part;
    }
    PyObject *readings = PyList_New(marks->count);
    for (Py_ssize_t i = 0; readings != NULL && i < marks->count; i++) {
        PyObject *reading = reading_at(marks->objects, marks->values, i);
        if (reading == NULL)
            Py_CLEAR(readings);
        else
            PyList_SET_ITEM(readings, i, reading);
    }
    return readings;
}

/* Return the codes as bytes: of a step with the codes of the one before, the same object, found by its identity and
hashed once. */
static PyObject *codes_of(MarkBuffer *self, arrays *marks) {
    Py_ssize_t size = marks->count * (Py_ssize_t)sizeof *marks->codes;
    PyObject *last = self->last_codes;
    if (last != NULL && PyBytes_GET_SIZE(last) == size && (size == 0 || memcmp(PyBytes_AS_STRING(last), marks->codes, size) == 0))
        return Py_NewRef(last);
    PyObject *codes = PyBytes_FromStringAndSize((char *)marks->codes, size);
    if (codes != NULL)
        Py_XSETREF(self->last_codes, Py_NewRef(codes));
    return codes;
}

static PyObject *mark_buffer_take(PyObject *op, PyObject *number) {
    MarkBuffer *self = (MarkBuffer *)op;
    long long serial = PyLong_AsLongLong(number);
    if (serial == -1 && PyErr_Occurred())
        return NULL;
    arrays marks = detach(self); /* first: an allocation may run the garbage collector, and it a finalizer that marks */
    self->serial = serial;
    self->ordinal = 0;
    PyObject *taken = NULL, *readings = readings_of(&marks), *codes = codes_of(self, &marks);
    if (codes != NULL && readings != NULL)
        taken = PyTuple_Pack(2, codes, readings);
    Py_XDECREF(codes);
    Py_XDECREF(readings);
    release(self, &marks);
    return taken;
}

static PyObject *mark_buffer_empty(PyObject *op, PyObject *Py_UNUSED(none)) {
    arrays marks = detach((MarkBuffer *)op);
    release((MarkBuffer *)op, &marks);
    Py_RETURN_NONE;
}

static PyObject *mark_buffer_next_ordinal(PyObject *op, PyObject *Py_UNUSED(none)) {
    return PyLong_FromLongLong(((MarkBuffer *)op)->ordinal += ORDINAL_STRIDE);
}

static Py_ssize_t mark_buffer_length(PyObject *op) {
    return 2 * ((MarkBuffer *)op)->count;
}

static PyObject *mark_buffer_item(PyObject *op, Py_ssize_t at) {
    MarkBuffer *self = (MarkBuffer *)op;
    if (at < 0 || at >= 2 * self->count)
        return PyErr_Format(PyExc_IndexError, "index %zd out of range", at);
    return at % 2 ? reading_at(self->objects, self->values, at / 2) : PyLong_FromLongLong(self->codes[at / 2]);
}

static PyObject *mark_buffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"serial", "limit", NULL};
    long long serial;
    Py_ssize_t limit;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Ln:MarkBuffer", names, &serial, &limit))
        return NULL;
    MarkBuffer *self = (MarkBuffer *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->serial = serial;
        self->limit = limit;
        self->running = -1;
    }
    return (PyObject *)self;
}

static int mark_buffer_traverse(PyObject *op, visitproc visit, void *arg) {
    MarkBuffer *self = (MarkBuffer *)op;
    for (Py_ssize_t i = 0; self->objects != NULL && i < self->count; i++)
        Py_VISIT(self->objects[i]);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int mark_buffer_clear(PyObject *op) {
    MarkBuffer *self = (MarkBuffer *)op;
    arrays marks = detach(self);
    release(self, &marks);
    Py_CLEAR(self->block);
    for (int i = 0; i < KEPT_BLOCKS; i++)
        Py_CLEAR(self->blocks[i]);
    Py_CLEAR(self->last_codes);
    PyMem_Free(self->codes);
    self->codes = NULL;
    self->codes_capacity = self->capacity = 0;
    return 0;
}

DEFINE_DEALLOC(mark_buffer)

static PyMethodDef methods[] = {
    {"extend", mark_buffer_extend, METH_O, "Append marks: a tuple of alternating codes and readings."},
    {"take", mark_buffer_take, METH_O, "Return the codes and readings, and start the step of this serial."},
    {"clear", mark_buffer_empty, METH_NOARGS, "Remove all marks."},
    {"next_ordinal", mark_buffer_next_ordinal, METH_NOARGS, "Return the ordinal of a new call."},
    {NULL},
};

static PyMemberDef members[] = {
    {"serial", T_LONGLONG, offsetof(MarkBuffer, serial), READONLY, "number of the open step"},
    {"running", T_LONGLONG, offsetof(MarkBuffer, running), 0, "id of the backward pass that the last mark belonged to"},
    {"multithreaded", T_BOOL, offsetof(MarkBuffer, multithreaded), 0, "whether another thread made a mark in the step"},
    {"dropped", T_LONGLONG, offsetof(MarkBuffer, dropped), 0, "marks that found no room"},
    {"suspended", T_BOOL, offsetof(MarkBuffer, suspended), 0, "whether nothing is appended: the step is unsampled"},
    {"idle", T_BOOL, offsetof(MarkBuffer, idle), 0, "whether calls of modules are not marked"},
    {"skipped", T_LONGLONG, offsetof(MarkBuffer, skipped), 0, "marks of calls on other threads that were passed over"},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "MarkBuffer(serial, limit)\n--\n\nThe marks of one step: a sequence with a code and a reading for each."},
    {Py_tp_new, mark_buffer_new},
    COLLECTION_SLOTS(mark_buffer),
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_sq_length, mark_buffer_length},
    {Py_sq_item, mark_buffer_item},
    {0, NULL},
};

DEFINE_SPEC(MarkBuffer, mark_buffer, slots, 0);
