/* Shared declarations of the extension that records marks.

mark_buffer.c   MarkBuffer: the marks of the open step
event_reader.c  EventReader: a reading of a device's clock
hook.c          HookContext: the state that the marks of one purpose share
call_site.c     CallTable, CallSite: calls of modules that are marked, without hooks on the modules
module_hooks.c  the usual case of the marks before and after a module's forward
node_marks.c    NodeMarks: the autograd nodes that mark a backward pass, by prehooks without Python
timed_method.c  TimedMethod: a method of tensors that is timed where it may wait for a device
gil_timer.c     GilTimer: a wait of another thread after which the main thread hands it the GIL
module.c        the module and its state

A hook here handles the usual case: a call on the training thread, with tensors only, while the buffer has room. It
hands every other case to the hook in Python before it has changed anything.

The GIL is the only lock: between a reading of the clock and the end of its append no Python code runs. */

#ifndef AUTOPROF_NATIVE_H
#define AUTOPROF_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>
#if defined(__linux__) || defined(__APPLE__)
#include <time.h>
#endif

#ifdef Py_GIL_DISABLED
#error "the extension relies on the GIL"
#endif

/* The hash of the C files, given by the build (source_hash.py); native.py uses no build of other sources. */
#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif

/* Codes of marks, as in codes.py. */
#define ORDINAL_SHIFT 24
#define ORDINAL_STRIDE (1LL << ORDINAL_SHIFT)
#define KIND_MASK 15
enum {
    MARK_ENTER = 0,
    MARK_RECOMPUTE = 1,
    MARK_LEAVE = 3,
    MARK_BACKWARD_START = 4,
    MARK_BACKWARD_END = 5,
    MARK_THREAD = 13,
};

/* Define how the garbage collector sees a type: FIELDS(DO) lists its references as DO(field), the first to be cleared
first. */
#define VISIT_FIELD(field) Py_VISIT(self->field);
#define CLEAR_FIELD(field) Py_CLEAR(self->field);
#define DEFINE_COLLECTION(type, name, FIELDS)                                                                       \
    static int name##_traverse(PyObject *op, visitproc visit, void *arg) {                                          \
        type *self = (type *)op;                                                                                    \
        FIELDS(VISIT_FIELD)                                                                                         \
        Py_VISIT(Py_TYPE(op));                                                                                      \
        return 0;                                                                                                   \
    }                                                                                                               \
    static int name##_clear(PyObject *op) {                                                                         \
        type *self = (type *)op;                                                                                    \
        FIELDS(CLEAR_FIELD)                                                                                         \
        return 0;                                                                                                   \
    }                                                                                                               \
    DEFINE_DEALLOC(name)

#define DEFINE_DEALLOC(name)                                                                                        \
    static void name##_dealloc(PyObject *op) {                                                                      \
        PyTypeObject *type = Py_TYPE(op);                                                                           \
        PyObject_GC_UnTrack(op);                                                                                    \
        name##_clear(op);                                                                                           \
        type->tp_free(op);                                                                                          \
        Py_DECREF(type);                                                                                            \
    }

#define COLLECTION_SLOTS(name)                                                                                      \
    {Py_tp_dealloc, name##_dealloc}, {Py_tp_traverse, name##_traverse}, {Py_tp_clear, name##_clear}

#define DEFINE_SPEC(type, prefix, type_slots, more_flags)                                                           \
    PyType_Spec prefix##_spec = {                                                                                   \
        .name = "autoprof.capture.marks._c." #type,                                                                \
        .basicsize = sizeof(type),                                                                                  \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | (more_flags),                 \
        .slots = type_slots,                                                                                        \
    }

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

#define FOR_EACH_TYPE(DO)                                                                                           \
    DO(mark_buffer) DO(hook_context) DO(timed_method) DO(event_reader) DO(call_table) DO(call_site) DO(call_entry)  \
    DO(node_mark) DO(node_marks) DO(gil_timer)

/* Names of attributes, interned. */
#define FOR_EACH_NAME(DO)                                                                                           \
    DO(_register_hook_dict) DO(_sequence_nr) DO(event) DO(host_ns) DO(place) DO(grad_fn) DO(is_here)

#define TYPE_FIELD(type) PyTypeObject *type##_type;
#define NAME_FIELD(name) PyObject *str_##name;

/* State of the module: its types, the functions of torch that hooks call, and the names. */
typedef struct {
    FOR_EACH_TYPE(TYPE_FIELD)
    FOR_EACH_NAME(NAME_FIELD)
    PyTypeObject *tensor_type;
    PyObject *graph_task_id, *sequence_nr;
    int (*graph_task_id_at)(void); /* the same functions in C++, or NULL */
    unsigned long long (*sequence_nr_at)(void);
    PyObject *no_kwargs; /* an empty dict */
    PyObject *perf_counter_ns;
} module_state;

extern struct PyModuleDef native_module;

module_state *state_of_type(PyTypeObject *type);

/* Get the number that a function of torch returns. */
int call_for_number(PyObject *function, long long *number);

enum { KEPT_BLOCKS = 16 }; /* four megabytes, as many as steps that wait may fill */

/* The marks of the open step. */
typedef struct {
    PyObject_HEAD
    long long *codes, *values; /* values: in the block, behind those of the steps before */
    PyObject **objects; /* readings that are no 64-bit integers, such as device events; NULL while there are none */
    Py_ssize_t count, capacity, codes_capacity;
    PyObject *block, *blocks[KEPT_BLOCKS]; /* bytes, or NULL: the present one, and those that serve again */
    Py_ssize_t block_used;                 /* values of closed steps in the block */
    Py_ssize_t limit; /* marks from which the hooks in C hand over to Python, and further marks are dropped */
    long long ordinal, serial;
    PyObject *last_codes;     /* bytes: the codes of the step that was taken last, or NULL */
    long long dropped;        /* marks that found no room */
    long long skipped;        /* marks of calls on other threads that were passed over */
    long long running;        /* id of the backward pass that the last mark belonged to */
    char multithreaded; /* whether another thread than the training thread has made a mark */
    char suspended; /* whether nothing is appended: the step is unsampled */
    char idle;      /* whether calls of modules are not marked */
} MarkBuffer;

int mark_buffer_grow(MarkBuffer *self);
int mark_buffer_append(MarkBuffer *self, long long code, PyObject *reading);

static inline int mark_buffer_append_ns(MarkBuffer *self, long long code, long long ns) {
    if (self->count == self->capacity && mark_buffer_grow(self) < 0)
        return -1;
    if (self->objects != NULL)
        self->objects[self->count] = NULL;
    self->codes[self->count] = code;
    self->values[self->count++] = ns;
    return 0;
}

typedef struct NodeMarks NodeMarks;

/* The state that the marks of one purpose share; update() renews the part that changes. */
typedef struct HookContext {
    PyObject_HEAD
    module_state *module; /* borrowed: the type of this object holds the module */
    MarkBuffer *buffer;
    NodeMarks *nodes;              /* this and the next one: NULL unless backward is tracked */
    PyObject *gaps;
    PyObject *fallback, *on_error; /* of a context of nodes: the prehook in Python, the function for its exceptions */
    PyObject *read_clock;
    unsigned long training_thread;
    char enabled; /* whether usual cases are handled in C */
    char reads_host_clock;
} HookContext;

typedef enum {
    HOOK_DONE,
    HOOK_FALLBACK, /* not the usual case: nothing has been changed, and no exception is set */
    HOOK_FAILED,   /* an exception is set */
} hook_outcome;

/* One call of a module: the shifted index of its label, of a call whose backward is tracked the ordinal, or 0, and whether
the module is a replica. */
typedef struct {
    long long code, ordinal;
    int is_replica;
} marked_call;

/* Set the marks around a module's call: `enter_call` the first one before its forward, `leave_call` the last one behind it,
given its output. `call` lives from the one to the other. Where they fall back nothing is marked, and the hooks in Python
have to do it. */
hook_outcome enter_call(HookContext *self, marked_call *call, PyObject *args, PyObject *kwargs);
hook_outcome leave_call(HookContext *self, marked_call *call, PyObject *output);

/* Pass an Exception of a hook to `on_error`; -1 where the exception goes on to the program. */
int report_hook_failure(PyObject *on_error, PyObject *first, PyObject *second);

/* Have the node of an input, or of an output, of a call mark the end, or the begin, of the call's backward. */
int node_marks_track_input(NodeMarks *self, unsigned long long number, PyObject *node, long long ordinal);
int node_marks_track_output(NodeMarks *self, unsigned long long number, PyObject *node, long long ordinal);
int node_marks_has_newest(NodeMarks *self, unsigned long long next_number);
int node_marks_continues(NodeMarks *self, PyObject *input, unsigned long long next_number);
void node_marks_remember_output(NodeMarks *self, PyObject *output, unsigned long long number);

/* Have Python code that looks for `__call__` in the type of marks find this function; calls go on being those in C. */
int set_traced_call(PyTypeObject *type, PyObject *function);

int append_clock_reading(HookContext *self, long long code);

/* Get the id of the backward pass that runs on this thread, -1 if none does. */
static inline int current_graph_task(module_state *module, long long *task) {
    if (module->graph_task_id_at != NULL) {
        *task = module->graph_task_id_at();
        return 0;
    }
    return call_for_number(module->graph_task_id, task);
}

/* Get the number that the next autograd node on this thread gets. */
static inline int next_node_number(module_state *module, long long *number) {
    if (module->sequence_nr_at != NULL) {
        *number = (long long)module->sequence_nr_at();
        return 0;
    }
    return call_for_number(module->sequence_nr, number);
}

/* Whether marks are appended: the step is sampled. */
static inline int is_appending(HookContext *self) {
    return self->enabled && self->buffer != NULL && !self->buffer->suspended;
}

/* Whether the mark of a call needs an append and nothing else: it is of the training thread. */
static inline int is_usual(HookContext *self) {
    return is_appending(self) && PyThread_get_thread_ident() == self->training_thread;
}

static inline int has_room(HookContext *self) {
    return self->buffer->count < self->buffer->limit;
}

/* The reading of time.perf_counter_ns, or -1 on systems where that is not known here. */
static inline long long now_ns(void) {
#if defined(__linux__)
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
#elif defined(__APPLE__)
    return (long long)clock_gettime_nsec_np(CLOCK_UPTIME_RAW); /* mach_absolute_time in nanoseconds, as CPython reads it */
#else
    return -1;
#endif
}

/* Append the mark that names this thread before the next one, unless it is the training thread. */
static inline int name_thread(HookContext *self) {
    unsigned long thread = PyThread_get_thread_ident();
    if (thread == self->training_thread)
        return 0;
    self->buffer->multithreaded = 1;
    return mark_buffer_append_ns(self->buffer, MARK_THREAD, (long long)thread);
}

/* Read the clock and append the mark. The host's clock is read here, any other one by a call. */
static inline int append_reading(HookContext *self, long long code) {
    long long now = self->reads_host_clock ? now_ns() : -1;
    if (now < 0)
        return append_clock_reading(self, code);
    return name_thread(self) < 0 ? -1 : mark_buffer_append_ns(self->buffer, code, now);
}

/* Return the exception that is set, and clear it. */
static inline PyObject *take_exception(void) {
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
#endif
}

/* Set an exception that take_exception() returned; consumes the reference. */
static inline void set_exception(PyObject *error) {
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(error);
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
#endif
}

#define SPEC_OF(type) extern PyType_Spec type##_spec;
FOR_EACH_TYPE(SPEC_OF)

#endif
