/* Repeats: ends steps that differ from the step before in nothing but their times.

The first of several equal steps is ended in Python, which then calls begin(). Each further one is ended by end(): it
compares the step's marks and calls with those of the step before and keeps its readings as a row. Python takes the rows,
many at once. end() changes either everything or nothing, and runs no Python code. */

#include "native.h"

enum { HEAD = 2 }; /* values of a row before the readings: the Unix time of the step's start, and the cost of its end */
enum { MAX_CALLS = 64 };

typedef struct {
    PyObject_HEAD
    module_state *module; /* borrowed: the type of this object holds the module */
    MarkBuffer *buffer;
    CallMatcher *matcher;
    PassState *passes;   /* or NULL */
    PyObject *model;     /* its forward begins the step's marks */
    PyObject *anchor;    /* a tensor that is on the CPU as long as the model is, or NULL */
    PyObject *events;    /* tuple of containers that stay empty in a step that repeats another one */
    PyObject *per_step;  /* tuple of containers that are cleared at each end */
    PyObject *like;      /* bytes: the codes of the step that is repeated */
    PyObject *calls;     /* tuple: its calls of the model */
    long long begun, reached;
    long long *rows;
    Py_ssize_t marks, steps, limit, capacity; /* capacity in values */
    Py_ssize_t before;                        /* marks before the first training forward */
    long long start_ns, start_unix_ns, due_ns, most_ns;
    unsigned long thread;
    char enabled;
    char saw_forward; /* whether the open step has begun with a training forward of the model */
} Repeats;

static long long unix_ns(void) {
#if defined(__linux__)
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
#else
    return -1;
#endif
}

static Py_ssize_t row_length(Repeats *self) {
    return HEAD + self->marks + 1; /* the step's end is behind its readings */
}

/* Return the number of items in a list, dict or set; 1 for anything else. */
static Py_ssize_t items_in(PyObject *container) {
    if (PyList_CheckExact(container))
        return PyList_GET_SIZE(container);
    if (PyDict_CheckExact(container))
        return PyDict_GET_SIZE(container);
    return PyAnySet_CheckExact(container) ? PySet_GET_SIZE(container) : 1;
}

static int had_events(Repeats *self) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->events); i++)
        if (items_in(PyTuple_GET_ITEM(self->events, i)) > 0)
            return 1;
    return 0;
}

/* Whether the open step has so many marks now, and they are those with which the step before began. */
static int same_marks(Repeats *self, Py_ssize_t count) {
    MarkBuffer *buffer = self->buffer;
    return buffer->objects == NULL && buffer->count == count &&
           (count == 0 || memcmp(buffer->codes, PyBytes_AS_STRING(self->like), count * sizeof *buffer->codes) == 0);
}

static int same_calls(Repeats *self) {
    PyObject *numbers = self->matcher->numbers;
    Py_ssize_t count = PyTuple_GET_SIZE(self->calls);
    if (numbers == NULL || PyList_GET_SIZE(numbers) != count)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) /* small integers: equal ones are one object */
        if (PyList_GET_ITEM(numbers, i) != PyTuple_GET_ITEM(self->calls, i))
            return 0;
    return self->passes == NULL || (self->passes->begun == self->begun && self->passes->reached == self->reached);
}

/* Clear a list or a dict of objects whose destructors run no Python code. */
static int clear_container(PyObject *container) {
    if (PyDict_CheckExact(container)) {
        PyDict_Clear(container);
        return 0;
    }
    return PyList_SetSlice(container, 0, PyList_GET_SIZE(container), NULL);
}

/* Whether the model is still on the CPU; -1 with an exception. The anchor is a torch.Tensor or Parameter, and of no class
of the user's: the attribute runs no Python code. */
static int is_on_host(Repeats *self) {
    if (self->anchor == NULL)
        return 1;
    PyObject *is_cpu = PyObject_GetAttr(self->anchor, self->module->str_is_cpu);
    if (is_cpu == NULL)
        return -1;
    Py_DECREF(is_cpu);
    return is_cpu == Py_True;
}

static int clear_step(Repeats *self) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->per_step); i++)
        if (items_in(PyTuple_GET_ITEM(self->per_step, i)) > 0 &&
            clear_container(PyTuple_GET_ITEM(self->per_step, i)) < 0)
            return -1;
    return clear_container(self->matcher->numbers);
}

/* Keep the readings of the open step, which has ended at this time, and open the next one. */
static void keep(Repeats *self, long long end_ns, PyObject *serial) {
    MarkBuffer *buffer = self->buffer;
    long long *row = self->rows + self->steps * row_length(self);
    row[0] = self->start_unix_ns;
    memcpy(row + HEAD, buffer->values, self->marks * sizeof *row);
    row[HEAD + self->marks] = end_ns;
    self->steps++;
    buffer->count = 0;
    buffer->ordinal = 0;
    Py_SETREF(buffer->serial, serial);
    if (self->passes != NULL)
        self->passes->begun = self->passes->reached = 0;
    self->start_ns = end_ns;
    self->start_unix_ns = unix_ns();
    self->saw_forward = 0;
    row[1] = now_ns() - end_ns + self->matcher->spent_ns;
    self->matcher->spent_ns = 0;
}

static PyObject *repeats_end(PyObject *op, PyObject *Py_UNUSED(none)) {
    Repeats *self = (Repeats *)op;
    if (!self->enabled || !self->saw_forward || self->steps == self->limit ||
        PyThread_get_thread_ident() != self->thread)
        Py_RETURN_FALSE;
    long long end_ns = now_ns();
    if (end_ns >= self->due_ns || end_ns - self->start_ns >= self->most_ns || !same_marks(self, self->marks) || !same_calls(self) ||
        had_events(self))
        Py_RETURN_FALSE;
    int on_host = is_on_host(self);
    if (on_host <= 0)
        return on_host < 0 ? NULL : Py_NewRef(Py_False);
    PyObject *one = PyLong_FromLong(1), *serial = one == NULL ? NULL : PyNumber_Add(self->buffer->serial, one);
    Py_XDECREF(one);
    if (serial == NULL || clear_step(self) < 0) { /* no memory: Python ends the step */
        Py_XDECREF(serial);
        PyErr_Clear();
        self->enabled = 0;
        Py_RETURN_FALSE;
    }
    keep(self, end_ns, serial);
    Py_RETURN_TRUE;
}

static int make_room(Repeats *self, Py_ssize_t rows_wanted, Py_ssize_t length) {
    long long *rows = NULL;
    Py_ssize_t values = 0;
    if (rows_wanted <= PY_SSIZE_T_MAX / (Py_ssize_t)sizeof *rows / length) {
        values = rows_wanted * length;
        if (values <= self->capacity)
            return 0;
        rows = PyMem_Realloc(self->rows, values * sizeof *rows);
    }
    if (rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->rows = rows;
    self->capacity = values;
    return 0;
}

static int all_are(PyObject *tuple, int (*kind)(PyObject *)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (!kind(PyTuple_GET_ITEM(tuple, i)))
            return 0;
    return 1;
}

static int is_container(PyObject *op) {
    return PyList_CheckExact(op) || PyDict_CheckExact(op) || PyAnySet_CheckExact(op);
}

static int is_list_or_dict(PyObject *op) {
    return PyList_CheckExact(op) || PyDict_CheckExact(op);
}

static PyObject *repeats_begin(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"codes", "before", "calls", "begun", "reached", "events", "per_step",
                            "start_ns", "start_unix_ns", "due_ns", "most_ns", "limit", NULL};
    Repeats *self = (Repeats *)op;
    PyObject *like, *calls, *events, *per_step;
    long long begun, reached, start_ns, start_unix_ns, due_ns, most_ns;
    Py_ssize_t limit, before;
    self->enabled = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$SnO!LLO!O!LLLLn:begin", names, &like, &before, &PyTuple_Type, &calls, &begun,
                                     &reached, &PyTuple_Type, &events, &PyTuple_Type, &per_step, &start_ns,
                                     &start_unix_ns, &due_ns, &most_ns, &limit))
        return NULL;
    if (!all_are(events, is_container) || !all_are(per_step, is_list_or_dict)) {
        PyErr_SetString(PyExc_TypeError, "events are lists, dicts and sets; per_step are lists and dicts");
        return NULL;
    }
    if (self->steps) {
        PyErr_SetString(PyExc_RuntimeError, "the steps that have ended have not been taken");
        return NULL;
    }
    if (self->buffer == NULL || now_ns() < 0 || limit <= 0 || PyTuple_GET_SIZE(calls) > MAX_CALLS)
        Py_RETURN_NONE;
    Py_ssize_t marks = PyBytes_GET_SIZE(like) / (Py_ssize_t)sizeof *self->buffer->codes;
    if (before < 0 || before > marks || marks >= self->buffer->limit || make_room(self, limit, HEAD + marks + 1) < 0)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    Py_XSETREF(self->like, Py_NewRef(like));
    Py_XSETREF(self->calls, Py_NewRef(calls));
    Py_XSETREF(self->events, Py_NewRef(events));
    Py_XSETREF(self->per_step, Py_NewRef(per_step));
    for (Py_ssize_t i = 0; i < marks; i++) /* a code below 0 refers to another step */
        if (((long long *)PyBytes_AS_STRING(like))[i] < 0)
            Py_RETURN_NONE;
    self->marks = marks;
    self->before = before;
    self->limit = limit;
    self->begun = begun;
    self->reached = reached;
    self->start_ns = start_ns;
    self->start_unix_ns = start_unix_ns;
    self->due_ns = due_ns;
    self->most_ns = most_ns;
    self->thread = PyThread_get_thread_ident();
    self->saw_forward = 0;
    self->enabled = 1;
    Py_RETURN_NONE;
}

static PyObject *repeats_take(PyObject *op, PyObject *Py_UNUSED(none)) {
    Repeats *self = (Repeats *)op;
    if (!self->enabled && !self->steps)
        Py_RETURN_NONE;
    PyObject *taken = Py_BuildValue("ny#LLO", self->steps, (char *)self->rows,
                                    self->steps * row_length(self) * (Py_ssize_t)sizeof *self->rows, self->start_ns,
                                    self->start_unix_ns, self->saw_forward ? Py_True : Py_False);
    if (taken != NULL) {
        self->steps = 0;
        self->enabled = self->saw_forward = 0;
    }
    return taken;
}

/* A training forward of the model on the training thread, at the same place in the step as the first one of the step
before, or after such a forward. */
static hook_outcome first_forward_path(PyObject *context, PyObject *const *args, Py_ssize_t nargs,
                                       PyObject **Py_UNUSED(earlier)) {
    Repeats *self = (Repeats *)context;
    if (nargs < 2 || !self->enabled || args[1] != self->model || PyThread_get_thread_ident() != self->thread ||
        (!self->saw_forward && !same_marks(self, self->before)))
        return HOOK_FALLBACK;
    PyObject *training = PyObject_GetAttr(args[1], self->module->str_training);
    if (training == NULL)
        return HOOK_FAILED;
    Py_DECREF(training);
    PyObject *grad = training == Py_True ? PyObject_CallNoArgs(self->module->is_grad_enabled) : Py_NewRef(Py_False);
    if (grad == NULL)
        return HOOK_FAILED;
    Py_DECREF(grad);
    if (grad != Py_True || !self->enabled)
        return HOOK_FALLBACK;
    self->saw_forward = 1;
    return HOOK_DONE;
}

static PyObject *repeats_forward_pre_hook(PyObject *op, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fallback", "on_error", NULL};
    PyObject *fallback, *on_error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:forward_pre_hook", names, &fallback, &on_error))
        return NULL;
    return hook_new(((Repeats *)op)->module, first_forward_path, op, fallback, on_error);
}

static PyObject *repeats_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "matcher", "model", "anchor", "passes", NULL};
    module_state *module = state_of_type(type);
    PyObject *buffer, *matcher, *model, *anchor, *passes = NULL;
    if (module == NULL)
        return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!OO|O!:Repeats", names, module->mark_buffer_type, &buffer,
                                     module->call_matcher_type, &matcher, &model, &anchor,
                                     module->pass_state_type, &passes))
        return NULL;
    if (module->hook_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() has not been called");
        return NULL;
    }
    Repeats *self = (Repeats *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->module = module;
    self->buffer = (MarkBuffer *)Py_NewRef(buffer);
    self->matcher = (CallMatcher *)Py_NewRef(matcher);
    self->model = Py_NewRef(model);
    self->anchor = anchor == Py_None ? NULL : Py_NewRef(anchor);
    self->passes = (PassState *)Py_XNewRef(passes);
    return (PyObject *)self;
}

static int repeats_traverse(PyObject *op, visitproc visit, void *arg) {
    Repeats *self = (Repeats *)op;
    Py_VISIT(self->buffer);
    Py_VISIT(self->matcher);
    Py_VISIT(self->model);
    Py_VISIT(self->anchor);
    Py_VISIT(self->passes);
    Py_VISIT(self->events);
    Py_VISIT(self->per_step);
    Py_VISIT(self->calls);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int repeats_clear(PyObject *op) {
    Repeats *self = (Repeats *)op;
    self->enabled = 0; /* first: an end or a hook that is called after this hands over to Python */
    self->steps = 0;
    Py_CLEAR(self->buffer);
    Py_CLEAR(self->matcher);
    Py_CLEAR(self->model);
    Py_CLEAR(self->anchor);
    Py_CLEAR(self->passes);
    Py_CLEAR(self->events);
    Py_CLEAR(self->per_step);
    Py_CLEAR(self->calls);
    Py_CLEAR(self->like);
    return 0;
}

static void repeats_dealloc(PyObject *op) {
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    repeats_clear(op);
    PyMem_Free(((Repeats *)op)->rows);
    type->tp_free(op);
    Py_DECREF(type);
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"begin", KEYWORDS(repeats_begin), "End further steps that repeat the one that was just ended."},
    {"end", repeats_end, METH_NOARGS, "End the open step if it repeats the one before; return whether it does."},
    {"take", repeats_take, METH_NOARGS, "Return the steps ended since begin(), and end no more."},
    {"forward_pre_hook", KEYWORDS(repeats_forward_pre_hook), "Return a hook to be called before the model's forward."},
    {NULL},
};

static PyMemberDef members[] = {
    {"enabled", T_BOOL, offsetof(Repeats, enabled), READONLY, "whether end() may end the open step"},
    {"saw_forward", T_BOOL, offsetof(Repeats, saw_forward), READONLY, "whether such a step has reached its forward"},
    {"steps", T_PYSSIZET, offsetof(Repeats, steps), READONLY, "number of the steps that wait to be taken"},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Repeats(buffer, matcher, model, anchor, passes=...)\n--\n\n"
                "Ends steps that differ from the step before in nothing but their times."},
    {Py_tp_new, repeats_new},
    {Py_tp_dealloc, repeats_dealloc},
    {Py_tp_traverse, repeats_traverse},
    {Py_tp_clear, repeats_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec repeats_spec = {
    .name = "autoprof._capture.marks._c.Repeats",
    .basicsize = sizeof(Repeats),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
