/* GilTimer: a wait of another thread after which the main thread hands it the GIL.

A thread that waits for the GIL has Python code interrupted after the switch interval, but each release begins the
interval anew: beside a loop of short tensor operations, which have the GIL back before the waiting thread is awake, it
waits until the loop is over. So the end of the wait asks the main thread for it, by a pending call. CPython before 3.13
makes that call when the main thread next takes the GIL, later versions between any two instructions.
*/

#include "native.h"

enum { LONGEST_HANDOVER_US = 500 }; /* the other thread has the GIL after some 50 us, later on a busy machine */

typedef struct {
    PyObject_HEAD
    PyThread_type_lock woken; /* held until wake() */
    PyThread_type_lock taken; /* held from the end of a wait until its thread has the GIL */
    PyThread_type_lock asked; /* held while the main thread has the pending call before it */
    long long handover_ns;    /* time that the main thread has waited for the other one */
} GilTimer;

/* The pending call, which owns a reference. It does not wait where the other thread has got the GIL meanwhile. */
static int hand_over(void *op) {
    GilTimer *self = op;
    long long begun_ns = now_ns(), ended_ns;
    Py_BEGIN_ALLOW_THREADS
    if (PyThread_acquire_lock_timed(self->taken, LONGEST_HANDOVER_US, 0) == PY_LOCK_ACQUIRED)
        PyThread_release_lock(self->taken);
    ended_ns = now_ns();
    Py_END_ALLOW_THREADS
    self->handover_ns += ended_ns - begun_ns;
    PyThread_release_lock(self->asked);
    Py_DECREF(op);
    return 0;
}

static PyObject *gil_timer_wait(PyObject *op, PyObject *seconds) {
    GilTimer *self = (GilTimer *)op;
    double length_s = PyFloat_AsDouble(seconds);
    if (length_s == -1.0 && PyErr_Occurred())
        return NULL;
    int woken, held, asks;
    Py_INCREF(op); /* for the pending call */
    Py_BEGIN_ALLOW_THREADS
    woken = PyThread_acquire_lock_timed(self->woken, (PY_TIMEOUT_T)(length_s * 1e6), 0) == PY_LOCK_ACQUIRED;
    held = PyThread_acquire_lock(self->taken, NOWAIT_LOCK);
    asks = held && PyThread_acquire_lock(self->asked, NOWAIT_LOCK);
    if (asks && Py_AddPendingCall(hand_over, self) != 0) {
        PyThread_release_lock(self->asked);
        asks = 0;
    }
    Py_END_ALLOW_THREADS
    if (held)
        PyThread_release_lock(self->taken);
    if (!asks)
        Py_DECREF(op);
    return PyBool_FromLong(woken);
}

static PyObject *gil_timer_wake(PyObject *op, PyObject *Py_UNUSED(none)) {
    PyThread_type_lock woken = ((GilTimer *)op)->woken;
    PyThread_acquire_lock(woken, NOWAIT_LOCK);
    PyThread_release_lock(woken);
    Py_RETURN_NONE;
}

static PyObject *gil_timer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":GilTimer", names))
        return NULL;
    GilTimer *self = (GilTimer *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->woken = PyThread_allocate_lock();
    self->taken = PyThread_allocate_lock();
    self->asked = PyThread_allocate_lock();
    if (self->woken == NULL || self->taken == NULL || self->asked == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(self->woken, NOWAIT_LOCK);
    return (PyObject *)self;
}

static int gil_timer_clear(PyObject *op) {
    GilTimer *self = (GilTimer *)op;
    PyThread_type_lock *locks[] = {&self->woken, &self->taken, &self->asked};
    for (size_t at = 0; at < sizeof locks / sizeof *locks; at++) {
        if (*locks[at] != NULL)
            PyThread_free_lock(*locks[at]);
        *locks[at] = NULL;
    }
    return 0;
}
DEFINE_DEALLOC(gil_timer)

static int gil_timer_traverse(PyObject *op, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static PyMethodDef methods[] = {
    {"wait", gil_timer_wait, METH_O, "Wait some seconds, forever if negative; return whether wake() ended the wait."},
    {"wake", gil_timer_wake, METH_NOARGS, "End the wait, or the next one where there is none."},
    {NULL},
};

static PyMemberDef members[] = {
    {"handover_ns", T_LONGLONG, offsetof(GilTimer, handover_ns), READONLY, "time that the main thread has waited"},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A wait of another thread after which the main thread hands it the GIL."},
    {Py_tp_new, gil_timer_new},
    {Py_tp_dealloc, gil_timer_dealloc},
    {Py_tp_traverse, gil_timer_traverse},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

DEFINE_SPEC(GilTimer, gil_timer, slots, 0);
