/* The module and its state: multi-phase initialisation (PEP 489). */

#include "native.h"

static module_state *state_of(PyObject *module) {
    return (module_state *)PyModule_GetState(module);
}

module_state *state_of_type(PyTypeObject *type) {
    return (module_state *)PyType_GetModuleState(type);
}

static PyObject *configure(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"tensor_type",  "graph_task_id",    "sequence_nr", "traced_mark",
                            "graph_task_id_at", "sequence_nr_at", NULL};
    module_state *state = state_of(module);
    PyObject *tensor_type, *graph_task_id, *sequence_nr, *traced_mark;
    unsigned long long graph_task_id_at, sequence_nr_at;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!OOOKK:configure", names, &PyType_Type, &tensor_type,
                                     &graph_task_id, &sequence_nr, &traced_mark, &graph_task_id_at, &sequence_nr_at))
        return NULL;
    if (set_traced_call(state->node_mark_type, traced_mark) < 0)
        return NULL;
    Py_XSETREF(state->tensor_type, (PyTypeObject *)Py_NewRef(tensor_type));
    Py_XSETREF(state->graph_task_id, Py_NewRef(graph_task_id));
    Py_XSETREF(state->sequence_nr, Py_NewRef(sequence_nr));
    state->graph_task_id_at = (int (*)(void))(uintptr_t)graph_task_id_at;
    state->sequence_nr_at = (unsigned long long (*)(void))(uintptr_t)sequence_nr_at;
    Py_RETURN_NONE;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **field) {
    *field = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *field == NULL ? -1 : PyModule_AddType(module, *field);
}

static int native_exec(PyObject *module) {
    module_state *state = state_of(module);
#define ADD_TYPE(type) || add_type(module, &type##_spec, &state->type##_type) < 0
#define INTERN(name) || (state->str_##name = PyUnicode_InternFromString(#name)) == NULL
    if (0 FOR_EACH_TYPE(ADD_TYPE) FOR_EACH_NAME(INTERN))
        return -1;
    if ((state->no_kwargs = PyDict_New()) == NULL)
        return -1;
    PyObject *time = PyImport_ImportModule("time");
    if (time == NULL)
        return -1;
    state->perf_counter_ns = PyObject_GetAttrString(time, "perf_counter_ns");
    Py_DECREF(time);
    if (state->perf_counter_ns == NULL)
        return -1;
    return PyModule_AddStringConstant(module, "SOURCE_HASH", SOURCE_HASH);
}

#define FOR_EACH_OBJECT(TYPE, NAME, DO)                                                                             \
    FOR_EACH_TYPE(TYPE) FOR_EACH_NAME(NAME) DO(tensor_type) DO(graph_task_id) DO(sequence_nr) DO(no_kwargs)         \
    DO(perf_counter_ns)

static int native_traverse(PyObject *module, visitproc visit, void *arg) {
    module_state *state = state_of(module);
#define VISIT(field) Py_VISIT(state->field);
#define VISIT_TYPE(type) VISIT(type##_type)
#define VISIT_NAME(name) VISIT(str_##name)
    FOR_EACH_OBJECT(VISIT_TYPE, VISIT_NAME, VISIT)
    return 0;
}

static int native_clear(PyObject *module) {
    module_state *state = state_of(module);
#define CLEAR(field) Py_CLEAR(state->field);
#define CLEAR_TYPE(type) CLEAR(type##_type)
#define CLEAR_NAME(name) CLEAR(str_##name)
    FOR_EACH_OBJECT(CLEAR_TYPE, CLEAR_NAME, CLEAR)
    return 0;
}

static void native_free(void *module) {
    native_clear((PyObject *)module);
}

static PyMethodDef functions[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS,
     "Set the type of tensors and the functions of torch that hooks call."},
    {NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, native_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

struct PyModuleDef native_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "autoprof.capture.marks._c",
    .m_doc = "Record marks in C: their buffer, and the usual case of the hooks.",
    .m_size = sizeof(module_state),
    .m_methods = functions,
    .m_slots = module_slots,
    .m_traverse = native_traverse,
    .m_clear = native_clear,
    .m_free = native_free,
};

PyMODINIT_FUNC PyInit__c(void) {
    return PyModuleDef_Init(&native_module);
}
