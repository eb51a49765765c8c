/* EventReader: a reading of a device's clock, an event recorded on this thread's current stream. The reading in Python,
for every other case, is in devices/_device_clock.py. */

#include "native.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    module_state *module;                                     /* borrowed: the type of this object holds the module */
    PyObject *read;                                           /* the reading in Python */
    PyObject *here, *device;                                  /* here(device) returns the place, or None */
    PyObject *pools, *streams;                                /* free stamps by device, streams by place */
    PyObject *record, *current_device, *current_stream, *is_capturing;
    PyObject *known_device, *known_stream;                    /* those of the reading before, or NULL */
    PyObject *place, *pool, *stream;                          /* what belongs to them */
} EventReader;

/* Look up what belongs to a device and its current stream: 0 where they have no pool or no stream yet. */
static int learn_place(EventReader *self, PyObject *device, PyObject *number) {
    PyObject *place = PyObject_CallOneArg(self->here, self->device), *pool = NULL, *stream = NULL;
    if (place != NULL && PyTuple_CheckExact(place) && PyTuple_GET_SIZE(place) == 2) {
        pool = PyDict_GetItemWithError(self->pools, PyTuple_GET_ITEM(place, 0));
        stream = pool == NULL ? NULL : PyDict_GetItemWithError(self->streams, place);
    }
    int known = stream != NULL && PyList_CheckExact(pool);
    if (known) {
        Py_XSETREF(self->known_device, Py_NewRef(device));
        Py_XSETREF(self->known_stream, Py_NewRef(number));
        Py_XSETREF(self->pool, Py_NewRef(pool));
        Py_XSETREF(self->stream, Py_NewRef(stream));
        Py_XSETREF(self->place, Py_NewRef(place));
    }
    Py_XDECREF(place);
    return PyErr_Occurred() ? -1 : known;
}

/* Whether this is the usual case: no graph is captured, the device is the current one, and a stamp of it is free. */
static int is_usual_reading(EventReader *self) {
    PyObject *captured = PyObject_CallNoArgs(self->is_capturing), *number = NULL;
    Py_XDECREF(captured); /* the interpreter holds True and False */
    PyObject *device = captured == Py_False ? PyObject_CallNoArgs(self->current_device) : NULL;
    if (device == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int usual = self->device == Py_None ? 1 : PyObject_RichCompareBool(self->device, device, Py_EQ);
    if (usual > 0 && (number = PyObject_CallOneArg(self->current_stream, device)) == NULL)
        usual = -1;
    if (usual > 0) {
        int known = self->place == NULL ? 0 : PyObject_RichCompareBool(self->known_device, device, Py_EQ);
        if (known > 0)
            known = PyObject_RichCompareBool(self->known_stream, number, Py_EQ);
        usual = known == 0 ? learn_place(self, device, number) : known;
    }
    Py_XDECREF(number);
    Py_DECREF(device);
    return usual > 0 ? PyList_GET_SIZE(self->pool) > 0 : usual;
}

/* Take a free stamp, and record its event. */
static PyObject *record_stamp(EventReader *self) {
    long long now = now_ns();
    PyObject *pool = self->pool, *place = Py_NewRef(self->place), *stream = Py_NewRef(self->stream);
    Py_ssize_t end = PyList_GET_SIZE(pool);
    PyObject *stamp = Py_NewRef(PyList_GET_ITEM(pool, end - 1)), *done = NULL, *event = NULL, *host_ns = NULL;
    if (PyList_SetSlice(pool, end - 1, end, NULL) == 0)
        host_ns = now >= 0 ? PyLong_FromLongLong(now) : PyObject_CallNoArgs(self->module->perf_counter_ns);
    if (host_ns != NULL && PyObject_SetAttr(stamp, self->module->str_host_ns, host_ns) == 0 &&
        PyObject_SetAttr(stamp, self->module->str_place, place) == 0)
        event = PyObject_GetAttr(stamp, self->module->str_event);
    if (event != NULL) {
        PyObject *arguments[] = {event, stream};
        done = PyObject_Vectorcall(self->record, arguments, 2, NULL);
    }
    Py_DECREF(stream);
    Py_DECREF(place);
    Py_XDECREF(host_ns);
    Py_XDECREF(event);
    if (done == NULL)
        Py_CLEAR(stamp);
    Py_XDECREF(done);
    return stamp;
}

static PyObject *event_reader_call(PyObject *op, PyObject *const *Py_UNUSED(args), size_t Py_UNUSED(nargsf),
                                   PyObject *Py_UNUSED(kwnames)) {
    EventReader *self = (EventReader *)op;
    if (self->read == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the clock is gone");
        return NULL;
    }
    Py_INCREF(op);
    int usual = is_usual_reading(self);
    PyObject *stamp = usual < 0 ? NULL : usual ? record_stamp(self) : PyObject_CallNoArgs(self->read);
    Py_DECREF(op);
    return stamp;
}

static PyObject *event_reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"read",    "here",           "device",         "pools",        "record",
                            "streams", "current_device", "current_stream", "is_capturing", NULL};
    module_state *module = state_of_type(type);
    PyObject *read, *here, *device, *pools, *record, *streams, *current_device, *current_stream, *is_capturing;
    if (module == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO!$OO!OOO:EventReader", names, &read, &here,
                                                       &device, &PyDict_Type, &pools, &record, &PyDict_Type, &streams,
                                                       &current_device, &current_stream, &is_capturing))
        return NULL;
    EventReader *self = (EventReader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = event_reader_call;
    self->module = module;
    self->read = Py_NewRef(read);
    self->here = Py_NewRef(here);
    self->device = Py_NewRef(device);
    self->pools = Py_NewRef(pools);
    self->record = Py_NewRef(record);
    self->streams = Py_NewRef(streams);
    self->current_device = Py_NewRef(current_device);
    self->current_stream = Py_NewRef(current_stream);
    self->is_capturing = Py_NewRef(is_capturing);
    return (PyObject *)self;
}

#define EVENT_READER_FIELDS(DO)                                                                                     \
    DO(read) DO(here) DO(device) DO(pools) DO(streams) DO(record) DO(current_device) DO(current_stream)             \
    DO(is_capturing) DO(place) DO(known_device) DO(known_stream) DO(pool) DO(stream)
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
