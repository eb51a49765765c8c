/* Marks in C: the buffer that they are appended to (tape.c), the usual path of the hooks that append them (paths.c), and
what Python sees of those (module.c).

A hook here stands before the one written in Python (its `slow`), and does what that does for the usual call: one of
the training thread, with tensors only, while there is room. Whatever else comes is handed to the one in Python before
anything has been done, so that what hooks mean stands in one place, and everything works without these files.

The interpreter's lock is the only one: between a reading and the end of its append no Python code runs. */

#ifndef AUTOPROF_MARKS_H
#define AUTOPROF_MARKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#if defined(__linux__)
#include <time.h>
#endif

#ifdef Py_GIL_DISABLED
#error "this counts on the interpreter's lock; without it the recorder's list and the hooks in Python are used"
#endif

/* A step's marks, as the recorder's list has them: code and reading in turns. */
typedef struct {
    PyObject_HEAD
    long long *codes, *values;
    PyObject **objects; /* readings that are no integers, as a device's; NULL where there are none */
    Py_ssize_t count, room;
    long long ordinal, apart; /* the last call's, and how far apart they lie */
    PyObject *serial;
} Tape;

extern PyTypeObject TapeType;

int tape_grow(Tape *self);
int append_reading(Tape *self, long long code, PyObject *reading);

static inline int append_ns(Tape *self, long long code, long long value) {
    if (self->count == self->room && tape_grow(self) < 0)
        return -1;
    if (self->objects != NULL)
        self->objects[self->count] = NULL;
    self->codes[self->count] = code;
    self->values[self->count++] = value;
    return 0;
}

/* What the hooks of one purpose share; `renew` renews what changes. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *marked, *tensor;
    Tape *tape;
    PyObject *read, *failed;
    PyObject *task, *number;                         /* torch's: which backward runs, which node would be next */
    PyObject *nodes, *gaps, *passes, *mark;          /* where backward is followed; `mark` is the nodes' hook */
    PyObject *graded, *autocast;                     /* torch's: the modes of a call of the model */
    Py_ssize_t entering, recomputing, leaving, open; /* where a HookState has its slots */
    Py_ssize_t attached, after, usual, met, spent;   /* and what looks at the model */
    Py_ssize_t full, most;
    long long start, end, pass, kinds;               /* as in recorder.py */
    unsigned long training, home;
    int on, alone, host;
} State;

/* Returns NULL where the call is not a usual one, or with an error and `mine` set. */
typedef PyObject *(*Fast)(State *, PyObject *const *, Py_ssize_t, int *);

/* A hook: its usual path, and the one in Python. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    State *state;
    PyObject *slow, *name;
    Fast fast;
} Hook;

static inline PyObject *slot(PyObject *owner, Py_ssize_t offset) {
    return *(PyObject **)((char *)owner + offset);
}

/* What time.perf_counter_ns reads; -1 where that is not known here. */
static inline long long now_ns(void) {
#if defined(__linux__)
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
#else
    return -1;
#endif
}

PyObject *look(State *self, PyObject *const *args, Py_ssize_t count, int *mine);
Fast find_path(const char *name);
int intern_names(void);
int intern_looks(void);

#endif
