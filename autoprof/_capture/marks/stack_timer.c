/* StackTimer: has the main thread sample its own stack at random moments.

A thread without the GIL waits, and posts a pending call. The main thread runs that at its next check for signals: at
once in Python code, and after the call where a function in C runs. No Python code runs in it, no garbage collection and
no tracing function, so it may come anywhere. Only one call is posted at a time. */

#include <patchlevel.h>
#if PY_VERSION_HEX < 0x030D0000
#define Py_BUILD_CORE_MODULE 1 /* for interrupt_main() */
#endif

#include "native.h"

#if HAS_STACK_TIMER

#include <frameobject.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* From 3.10 to 3.12 the main thread does not notice a call that another thread posts until it takes the GIL again
(python/cpython issue 95820), unless its flag is set. Every thread that takes the GIL computes the flag anew. */
#if PY_VERSION_HEX < 0x030D0000
#include <internal/pycore_ceval.h>
#include <internal/pycore_interp.h>

static void interrupt_main(void) {
    _Py_atomic_store_relaxed(&PyInterpreterState_Main()->ceval.eval_breaker, 1);
}
#else
static void interrupt_main(void) {
}
#endif

/* Before 3.12 Py_AddPendingCall() asks for the interpreter of the thread that holds the GIL, which may end meanwhile. */
static int add_pending_call(int (*call)(void *), void *context) {
#if PY_VERSION_HEX < 0x030C0000
    return _PyEval_AddPendingCall(PyInterpreterState_Main(), call, context);
#else
    return Py_AddPendingCall(call, context);
#endif
}

enum { GRACE_NS = 200000 }; /* the wait for the main thread to run the call, where it runs Python */

enum {
    IDLE,     /* nothing is posted */
    POSTED,   /* the call will sample */
    CANCELED, /* the call will do nothing */
};

typedef struct {
    PyObject_HEAD
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_int state, active, closed, idle;
    _Atomic long long ran_ns;            /* end of the last sample, or begin of the first wait */
    long long due_ns, posted_ns, mean_ns; /* of the posted call; written while the state is not POSTED */
    unsigned long long random;
    pid_t process;
    Py_ssize_t limit; /* samples kept */
    int depth;        /* frames of a sample */
    char excluded, blocked, waiting, referenced;
    long long count, spent_ns;
    PyObject *samples; /* list */
} StackTimer;

static long long thread_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Release the reference that a posted call has to the timer, when there is no such call. May free the timer. */
static void release_reference(StackTimer *self) {
    if (self->referenced && !self->waiting && atomic_load(&self->state) == IDLE) {
        self->referenced = 0;
        Py_DECREF(self);
    }
}

static int instruction_of(PyFrameObject *frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    PyObject *number = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    int instruction = number == NULL ? -1 : (int)PyLong_AsLong(number);
    Py_XDECREF(number);
    return instruction;
#endif
}

/* Append the code and the line of each frame, innermost first; consumes the reference. */
static int append_frames(PyObject *frames, PyFrameObject *frame, int depth) {
    int failed = 0;
    while (frame != NULL && depth-- > 0 && !failed) {
        PyObject *code = (PyObject *)PyFrame_GetCode(frame), *line = PyLong_FromLong(PyFrame_GetLineNumber(frame));
        failed = line == NULL || PyList_Append(frames, code) < 0 || PyList_Append(frames, line) < 0;
        Py_DECREF(code);
        Py_XDECREF(line);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return failed ? -1 : 0;
}

static int append_sample(StackTimer *self) {
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    if (frame == NULL) /* no Python code runs, as at the end of the process */
        return 0;
    long long weight_ns = self->mean_ns + now_ns() - self->due_ns;
    int instruction = instruction_of(frame);
    PyObject *frames = PyList_New(0);
    if (frames == NULL) {
        Py_DECREF(frame);
        return -1;
    }
    if (append_frames(frames, frame, self->depth) < 0) {
        Py_DECREF(frames);
        return -1;
    }
    PyObject *sample = Py_BuildValue("(LLNNiN)", self->posted_ns, weight_ns, PyBool_FromLong(self->excluded),
                                     PyBool_FromLong(self->blocked), instruction, frames);
    int failed = sample == NULL || PyList_Append(self->samples, sample) < 0;
    Py_XDECREF(sample);
    return failed ? -1 : 0;
}

/* The pending call, on the main thread. */
static int run_posted(void *context) {
    StackTimer *self = (StackTimer *)context;
    int expected = CANCELED;
    if (self->process != getpid()) { /* a fork inherits posted calls, but no thread */
        atomic_store(&self->state, IDLE);
        return 0;
    }
    if (!atomic_compare_exchange_strong(&self->state, &expected, IDLE)) {
        if (atomic_load(&self->active) && !atomic_load(&self->closed) && self->samples != NULL && !PyErr_Occurred()) {
            long long begun_ns = thread_ns();
            int collects = PyGC_Disable(); /* finalizers are code of the user */
            if (PyList_GET_SIZE(self->samples) < self->limit && append_sample(self) < 0)
                PyErr_Clear(); /* no memory: no sample */
            if (collects)
                PyGC_Enable();
            self->count++;
            self->spent_ns += thread_ns() - begun_ns;
        }
        atomic_store(&self->ran_ns, now_ns());
        atomic_store(&self->state, IDLE);
        pthread_cond_signal(&self->changed); /* without the mutex: nothing waits here; the waiting thread looks again */
    }
    release_reference(self);
    return 0;
}

/* The functions below run without the GIL, with the mutex. */

static void sleep_until(StackTimer *self, long long ns) {
    struct timespec until = {(time_t)(ns / 1000000000LL), (long)(ns % 1000000000LL)};
    pthread_cond_timedwait(&self->changed, &self->mutex, &until);
}

static void wait_until_active(StackTimer *self) {
    if (atomic_load(&self->active) && atomic_load(&self->ran_ns) > 0)
        return;
    atomic_store(&self->idle, 1); /* before `active` is read: who sets that reads this afterwards */
    while (!atomic_load(&self->active) && !atomic_load(&self->closed))
        pthread_cond_wait(&self->changed, &self->mutex);
    atomic_store(&self->idle, 0);
    atomic_store(&self->ran_ns, now_ns());
}

/* Return a random part of the mean time, from half of it to one and a half. */
static long long draw_wait(StackTimer *self, long long mean_ns) {
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return mean_ns / 2 + (long long)((double)(self->random >> 11) / 9007199254740992.0 * (double)mean_ns);
}

/* Wait a random time from the end of the last sample, or from the moment at which samples began. A wait for the GIL is
part of it. */
static void wait_until_due(StackTimer *self, long long mean_ns) {
    long long wait_ns = draw_wait(self, mean_ns);
    while (!atomic_load(&self->closed)) {
        long long now = now_ns(), due_ns = atomic_load(&self->ran_ns) + wait_ns;
        if (atomic_load(&self->state) == POSTED) /* a function in C runs */
            due_ns = now + wait_ns;
        else if (now >= due_ns) {
            self->due_ns = due_ns;
            self->mean_ns = mean_ns;
            return;
        }
        sleep_until(self, due_ns);
    }
}

/* Post the call, and return whether the main thread has not run it soon: a function in C runs. */
static int post(StackTimer *self) {
    int expected = CANCELED;
    long long until_ns = (self->posted_ns = now_ns()) + GRACE_NS;
    self->blocked = 0; /* the state is not POSTED, so neither thread with the GIL uses it */
    if (!atomic_compare_exchange_strong(&self->state, &expected, POSTED)) {
        atomic_store(&self->state, POSTED);
        if (!Py_IsInitialized() || add_pending_call(run_posted, self) < 0) {
            atomic_store(&self->state, IDLE);
            return 0;
        }
    }
    interrupt_main();
    while (atomic_load(&self->state) == POSTED && !atomic_load(&self->closed) && now_ns() < until_ns)
        sleep_until(self, until_ns);
    return atomic_load(&self->state) == POSTED;
}

static int post_calls(StackTimer *self, long long mean_ns, int rounds) {
    int late = 0;
    pthread_mutex_lock(&self->mutex);
    while (rounds-- > 0 && !late && !atomic_load(&self->closed)) {
        wait_until_active(self);
        wait_until_due(self, mean_ns);
        if (atomic_load(&self->active) && !atomic_load(&self->closed))
            late = post(self);
    }
    pthread_mutex_unlock(&self->mutex);
    return late;
}

static PyObject *stack_timer_wait(PyObject *op, PyObject *args) {
    StackTimer *self = (StackTimer *)op;
    long long mean_ns;
    int rounds, late;
    if (!PyArg_ParseTuple(args, "Li:wait", &mean_ns, &rounds))
        return NULL;
    if (self->waiting || mean_ns <= 0) {
        PyErr_SetString(PyExc_ValueError, "one thread at a time can wait, for a positive time");
        return NULL;
    }
    if (!self->referenced) { /* a posted call has no GIL to take one with */
        self->referenced = 1;
        Py_INCREF(op);
    }
    self->waiting = 1;
    Py_BEGIN_ALLOW_THREADS
    late = post_calls(self, mean_ns, rounds);
    Py_END_ALLOW_THREADS
    self->waiting = 0;
    release_reference(self);
    return PyBool_FromLong(late);
}

static PyObject *stack_timer_cancel(PyObject *op, PyObject *argument) {
    StackTimer *self = (StackTimer *)op;
    int expected = POSTED;
    long long within_ns = PyLong_AsLongLong(argument), now = now_ns();
    if (within_ns == -1 && PyErr_Occurred())
        return NULL;
    if (now - self->posted_ns > GRACE_NS + within_ns ||
        !atomic_compare_exchange_strong(&self->state, &expected, CANCELED))
        Py_RETURN_NONE;
    atomic_store(&self->ran_ns, now);
    return PyLong_FromLongLong(self->mean_ns + now - self->due_ns);
}

static PyObject *stack_timer_take(PyObject *op, PyObject *Py_UNUSED(none)) {
    StackTimer *self = (StackTimer *)op;
    PyObject *empty = PyList_New(0);
    if (empty == NULL || self->samples == NULL) {
        Py_XDECREF(empty);
        return PyErr_Occurred() ? NULL : Py_BuildValue("([]LL)", 0LL, 0LL);
    }
    PyObject *taken = Py_BuildValue("(NLL)", self->samples, self->count, self->spent_ns);
    self->samples = empty;
    self->count = self->spent_ns = 0;
    return taken;
}

static void wake(StackTimer *self) {
    if (self->process != getpid()) /* a fork has no thread to wake, and the mutex may be held for ever */
        return;
    pthread_mutex_lock(&self->mutex);
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

static PyObject *stack_timer_close(PyObject *op, PyObject *Py_UNUSED(none)) {
    atomic_store(&((StackTimer *)op)->closed, 1);
    wake((StackTimer *)op);
    Py_RETURN_NONE;
}

static PyObject *stack_timer_get_active(PyObject *op, void *Py_UNUSED(context)) {
    return PyBool_FromLong(atomic_load(&((StackTimer *)op)->active));
}

static int stack_timer_set_active(PyObject *op, PyObject *value, void *Py_UNUSED(context)) {
    StackTimer *self = (StackTimer *)op;
    int active = value == NULL ? -1 : PyObject_IsTrue(value);
    if (active < 0) {
        if (value == NULL)
            PyErr_SetString(PyExc_TypeError, "active cannot be deleted");
        return -1;
    }
    atomic_store(&self->active, active);
    if (active && atomic_load(&self->idle))
        wake(self);
    return 0;
}

static PyObject *stack_timer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"limit", "depth", NULL};
    Py_ssize_t limit;
    int depth;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ni:StackTimer", names, &limit, &depth))
        return NULL;
    StackTimer *self = (StackTimer *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&self->mutex, NULL);
    self->random = 88172645463325252ULL;
    self->process = getpid();
    self->limit = limit;
    self->depth = depth;
    if ((self->samples = PyList_New(0)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int stack_timer_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(((StackTimer *)op)->samples);
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static int stack_timer_clear(PyObject *op) {
    Py_CLEAR(((StackTimer *)op)->samples);
    return 0;
}

/* No thread waits and no call is posted: both hold a reference. */
static void stack_timer_dealloc(PyObject *op) {
    StackTimer *self = (StackTimer *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    stack_timer_clear(op);
    if (self->process == getpid()) {
        pthread_cond_destroy(&self->changed);
        pthread_mutex_destroy(&self->mutex);
    }
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"wait", stack_timer_wait, METH_VARARGS, "Post calls; return whether the main thread did not run the last one soon."},
    {"cancel", stack_timer_cancel, METH_O, "Cancel a call posted just now; return the time it stood for, or None."},
    {"take", stack_timer_take, METH_NOARGS, "Return the samples since the last call, their number and their cost."},
    {"close", stack_timer_close, METH_NOARGS, "Sample no more, and end the wait."},
    {NULL},
};

static PyMemberDef members[] = {
    {"excluded", T_BOOL, offsetof(StackTimer, excluded), 0, "whether samples belong to no step"},
    {"blocked", T_BOOL, offsetof(StackTimer, blocked), 0, "whether the posted call's thread is blocked"},
    {NULL},
};

static PyGetSetDef properties[] = {
    {"active", stack_timer_get_active, stack_timer_set_active, "whether samples are taken", NULL},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "StackTimer(limit, depth)\n--\n\nHas the main thread sample its own stack at random moments."},
    {Py_tp_new, stack_timer_new},
    {Py_tp_dealloc, stack_timer_dealloc},
    {Py_tp_traverse, stack_timer_traverse},
    {Py_tp_clear, stack_timer_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec stack_timer_spec = {
    .name = "autoprof._capture.marks._c.StackTimer",
    .basicsize = sizeof(StackTimer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

#endif
