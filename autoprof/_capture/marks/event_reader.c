/* EventReader: a reading of a device's clock, an event recorded on this thread's current stream. The reading in Python is
in devices/_device_clock.py. */

#include "native.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    module_state *module; /* borrowed: the type of this object holds the module */
    PyObject *read;       /* the reading in Python */
    PyObject *here, *device;         /* here(device) returns the place: a tuple of device and stream, or None */
    PyObject *pools; /* free stamps by device */
    PyObject *streams;      /* by place, or NULL: record() takes the place */
    PyObject *record, *now;
    PyObject *current_device, *current_stream, *is_capturing; /* or NULL: here() is called for each reading */
    PyObject *known_device, *known_stream, *known_place;      /* the place that here() returned last, or NULL */
} EventReader;

static int is_equal(PyObject *one, PyObject *other) {
    return one == other ? 1 : PyObject_RichCompareBool(one, other, Py_EQ);
}

static PyObject *ask_for_place(EventReader *self) {
    return PyObject_CallOneArg(self->here, self->device);
}

/* Return the place on the current device: that of the reading before where device and stream are the same. */
static PyObject *place_on(EventReader *self, PyObject *device) {
    PyObject *place = NULL, *stream = PyObject_CallOneArg(self->current_stream, device);
    if (stream == NULL)
        return NULL;
    int known = self->known_place == NULL ? 0 : is_equal(self->known_device, device);
    if (known > 0)
        known = is_equal(self->known_stream, stream);
    if (known > 0)
        place = Py_NewRef(self->known_place);
    else if (known == 0 && (place = ask_for_place(self)) != NULL) {
        Py_XSETREF(self->known_device, Py_NewRef(device));
        Py_XSETREF(self->known_stream, Py_NewRef(stream));
        Py_XSETREF(self->known_place, Py_NewRef(place));
    }
    Py_DECREF(stream);
    return place;
}

/* Return the present place. */
static PyObject *find_place(EventReader *self) {
    if (self->current_stream == NULL)
        return ask_for_place(self);
    PyObject *captured = PyObject_CallNoArgs(self->is_capturing);
    Py_XDECREF(captured); /* the interpreter holds True and False */
    PyObject *device = captured == Py_False ? PyObject_CallNoArgs(self->current_device) : NULL;
    if (device == NULL)
        return PyErr_Occurred() ? NULL : ask_for_place(self);
    int current = self->device == Py_None ? 1 : is_equal(self->device, device);
    PyObject *place = current < 0 ? NULL : current ? place_on(self, device) : ask_for_place(self);
    Py_DECREF(device);
    return place;
}

/* Get the stream of a place on which to record, NULL where this is not the usual case: no free stamp, or a graph is
captured. Returns a borrowed reference. */
static PyObject *usual_stream(EventReader *self, PyObject *place, PyObject **pool) {
    if (!PyTuple_CheckExact(place) || PyTuple_GET_SIZE(place) != 2)
        return NULL;
    *pool = PyDict_GetItemWithError(self->pools, PyTuple_GET_ITEM(place, 0));
    if (*pool == NULL || !PyList_CheckExact(*pool) || PyList_GET_SIZE(*pool) == 0)
        return NULL;
    return self->streams == NULL ? place : PyDict_GetItemWithError(self->streams, place);
}

/* Take a free stamp, and record its event. */
static PyObject *record_stamp(EventReader *self, PyObject *place, PyObject *pool, PyObject *stream) {
    long long now = self->now == self->module->perf_counter_ns ? now_ns() : -1;
    Py_ssize_t end = PyList_GET_SIZE(pool);
    PyObject *stamp = Py_NewRef(PyList_GET_ITEM(pool, end - 1)), *done = NULL, *event = NULL;
    PyObject *host_ns = NULL;
    Py_INCREF(stream);
    if (PyList_SetSlice(pool, end - 1, end, NULL) == 0)
        host_ns = now >= 0 ? PyLong_FromLongLong(now) : PyObject_CallNoArgs(self->now);
    if (host_ns != NULL && PyObject_SetAttr(stamp, self->module->str_host_ns, host_ns) == 0 &&
        PyObject_SetAttr(stamp, self->module->str_place, place) == 0)
        event = PyObject_GetAttr(stamp, self->module->str_event);
    if (event != NULL) {
        PyObject *arguments[] = {event, stream};
        done = PyObject_Vectorcall(self->record, arguments, 2, NULL);
    }
    Py_DECREF(stream);
    Py_XDECREF(host_ns);
    Py_XDECREF(event);
    if (done == NULL)
        Py_CLEAR(stamp);
    Py_XDECREF(done);
    return stamp;
}

static PyObject *event_reader_call(PyObject *op, PyObject *const *Py_UNUSED(args), size_t nargsf, PyObject *kwnames) {
    EventReader *self = (EventReader *)op;
    if (PyVectorcall_NARGS(nargsf) || (kwnames != NULL && PyTuple_GET_SIZE(kwnames))) {
        PyErr_SetString(PyExc_TypeError, "a reading takes no arguments");
        return NULL;
    }
    if (self->read == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the clock is gone");
        return NULL;
    }
    Py_INCREF(op);
    PyObject *pool = NULL, *stamp = NULL, *place = find_place(self);
    PyObject *stream = place == NULL ? NULL : usual_stream(self, place, &pool);
    if (stream != NULL)
        stamp = record_stamp(self, place, pool, stream);
    else if (!PyErr_Occurred())
        stamp = PyObject_CallNoArgs(self->read);
    Py_XDECREF(place);
    Py_DECREF(op);
    return stamp;
}

static PyObject *event_reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"read",    "here",           "device",         "pools",        "now", "record",
                            "streams", "current_device", "current_stream", "is_capturing", NULL};
    module_state *module = state_of_type(type);
    PyObject *read, *here, *device, *pools, *now, *record;
    PyObject *streams = NULL, *current_device = NULL, *current_stream = NULL, *is_capturing = NULL;
    if (module == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO!OO|$O!OOO:EventReader", names, &read, &here,
                                                       &device, &PyDict_Type, &pools, &now, &record,
                                                       &PyDict_Type, &streams, &current_device, &current_stream,
                                                       &is_capturing))
        return NULL;
    if ((current_device == NULL) != (current_stream == NULL) || (current_stream == NULL) != (is_capturing == NULL)) {
        PyErr_SetString(PyExc_TypeError, "current_device, current_stream and is_capturing go together");
        return NULL;
    }
    EventReader *self = (EventReader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = event_reader_call;
    self->module = module;
    self->read = Py_NewRef(read);
    self->here = Py_NewRef(here);
    self->device = Py_NewRef(device);
    self->pools = Py_NewRef(pools);
    self->now = Py_NewRef(now);
    self->record = Py_NewRef(record);
    self->streams = Py_XNewRef(streams);
    self->current_device = Py_XNewRef(current_device);
    self->current_stream = Py_XNewRef(current_stream);
    self->is_capturing = Py_XNewRef(is_capturing);
    return (PyObject *)self;
}

#define EVENT_READER_FIELDS(DO)                                                                                     \
    DO(read) DO(here) DO(device) DO(pools) DO(streams) DO(record) DO(now) DO(current_device) DO(current_stream)     \
    DO(is_capturing) DO(known_device) DO(known_stream) DO(known_place)
DEFINE_COLLECTION(EventReader, event_reader, EVENT_READER_FIELDS)

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(EventReader, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A reading of a device's clock."},
    {Py_tp_new, event_reader_new},
    {Py_tp_call, PyVectorcall_Call},
    COLLECTION_SLOTS(event_reader),
    {Py_tp_members, members},
    {0, NULL},
};

DEFINE_SPEC(EventReader, event_reader, slots, Py_TPFLAGS_HAVE_VECTORCALL);
