/* The usual case of the prehook of an autograd node. The hook in Python is in probes/backward.py. */

#include "native.h"

/* A node of the open step with one code, in the backward pass that the last mark belonged to. The hook is bound to the
node's list: serial of the step, then codes. It runs on the thread of the backward pass. */
hook_outcome node_prehook_path(PyObject *context, PyObject *const *args, Py_ssize_t nargs,
                               PyObject **Py_UNUSED(earlier)) {
    HookContext *self = (HookContext *)context;
    PyObject *codes = args[0];
    long long task;
    if (nargs != 2 || !is_usual(self) || !has_room(self) || !PyList_CheckExact(codes) || PyList_GET_SIZE(codes) != 2 ||
        PyList_GET_ITEM(codes, 0) != self->buffer->serial)
        return HOOK_FALLBACK;
    if (current_graph_task(self->module, &task) < 0)
        return HOOK_FAILED;
    if (task != self->passes->running || self->passes->captures)
        return HOOK_FALLBACK;
    long long code = PyLong_AsLongLong(PyList_GET_ITEM(codes, 1));
    if ((code == -1 && PyErr_Occurred()) || append_reading(self, code) < 0)
        return HOOK_FAILED;
    return HOOK_DONE;
}
