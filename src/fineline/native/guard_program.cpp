// The Python type GuardProgram: a Program, and the objects its steps hold.
#include "program.h"
#include "step.h"
#include "types.h"

namespace fineline {

namespace {

GuardProgram* as_program(PyObject* self) { return reinterpret_cast<GuardProgram*>(self); }

PyObject* program_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"n_roots", "steps", "outputs", nullptr};
  Py_ssize_t n_roots;
  PyObject *steps, *outputs;
  if (!init_steps()) return nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nOO", const_cast<char**>(names), &n_roots, &steps, &outputs)) return nullptr;
  Ref step_tuple(PySequence_Tuple(steps)), output_tuple(PySequence_Tuple(outputs));
  if (!step_tuple || !output_tuple) return nullptr;
  std::unique_ptr<Program> program = Program::parse(n_roots, step_tuple.get(), output_tuple.get());
  if (!program) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  as_program(self)->n_roots = n_roots;
  as_program(self)->steps = step_tuple.release();
  as_program(self)->outputs = output_tuple.release();
  as_program(self)->program = program.release();
  return self;
}

int program_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_program(self)->steps);
  Py_VISIT(as_program(self)->outputs);
  return 0;
}

int program_clear(PyObject* self) {
  Py_CLEAR(as_program(self)->steps);
  return 0;
}

void program_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (as_program(self)->weakrefs) PyObject_ClearWeakRefs(self);
  delete as_program(self)->program;
  Py_XDECREF(as_program(self)->steps);
  Py_XDECREF(as_program(self)->outputs);
  Py_TYPE(self)->tp_free(self);
}

// The items of `roots`, if the program can be run on them.
PyObject* const* checked_roots(PyObject* self, PyObject* roots) {
  Py_ssize_t expected = as_program(self)->n_roots;
  if (!PyTuple_Check(roots)) {
    PyErr_SetString(PyExc_TypeError, "roots must be a tuple");
  } else if (PyTuple_GET_SIZE(roots) != expected) {
    PyErr_Format(PyExc_ValueError, "the guard program takes %zd roots, not %zd", expected, PyTuple_GET_SIZE(roots));
  } else if (!as_program(self)->steps) {
    PyErr_SetString(PyExc_RuntimeError, "the guard program was cleared");
  } else {
    return &PyTuple_GET_ITEM(roots, 0);
  }
  return nullptr;
}

PyObject* program_check(PyObject* self, PyObject* roots) {
  PyObject* const* items = checked_roots(self, roots);
  if (!items) return nullptr;
  Program* program = as_program(self)->program;
  std::vector<PyObject*> outputs(program->n_outputs());
  Outcome outcome = program->check(items, outputs.data());
  if (outcome == Outcome::Error) return nullptr;
  if (outcome == Outcome::Miss) Py_RETURN_NONE;
  PyObject* result = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
  for (size_t i = 0; result && i < outputs.size(); i++) PyTuple_SET_ITEM(result, i, outputs[i]);
  return result;
}

PyObject* program_failing(PyObject* self, PyObject* roots) {
  PyObject* const* items = checked_roots(self, roots);
  if (!items) return nullptr;
  int index = as_program(self)->program->failing(items);
  return index == -2 ? nullptr : PyLong_FromLong(index);
}

PyObject* program_costs(PyObject* self, PyObject* roots) {
  PyObject* const* items = checked_roots(self, roots);
  if (!items) return nullptr;
  const std::optional<Costs> costs = as_program(self)->program->costs(items);
  if (!costs) return nullptr;
  Ref each(PyTuple_New(static_cast<Py_ssize_t>(costs->steps.size())));
  for (size_t i = 0; each && i < costs->steps.size(); i++) {
    PyObject* cost = PyFloat_FromDouble(costs->steps[i]);
    if (!cost) return nullptr;
    PyTuple_SET_ITEM(each.get(), i, cost);
  }
  return each ? Py_BuildValue("(Od)", each.get(), costs->check) : nullptr;
}

PyObject* program_statistics(PyObject* self, PyObject*) { return as_program(self)->program->statistics(); }

PyObject* program_repr(PyObject* self) {
  return PyUnicode_FromFormat("<guard program: %zd steps>", static_cast<Py_ssize_t>(as_program(self)->program->steps.size()));
}

PyMethodDef methods[] = {
    {"check", program_check, METH_O, "check(roots): the values of the output registers, or None on a miss."},
    {"failing", program_failing, METH_O, "failing(roots): the index of the first failing step, -1 if all pass."},
    {"costs", program_costs, METH_O, "costs(roots): the nanoseconds of each step, -1 for those after a failed one, and of a warm check, -1 if a step fails."},
    {"statistics", program_statistics, METH_NOARGS, "statistics(): how calls were checked so far."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"n_roots", T_PYSSIZET, offsetof(GuardProgram, n_roots), READONLY, "how many roots a call must have"},
    {"steps", T_OBJECT, offsetof(GuardProgram, steps), READONLY, "the steps as they were given"},
    {"outputs", T_OBJECT, offsetof(GuardProgram, outputs), READONLY, "the registers that a hit delivers"},
    {nullptr, 0, 0, 0, nullptr},
};

}  // namespace

PyTypeObject GuardProgramType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)  // which ends with a comma
    .tp_name = "fineline._native.GuardProgram",
    .tp_basicsize = sizeof(GuardProgram),
    .tp_dealloc = program_dealloc,
    .tp_repr = program_repr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_doc = "GuardProgram(n_roots, steps, outputs): a guard program that remembers what it proved.",
    .tp_traverse = program_traverse,
    .tp_clear = program_clear,
    .tp_weaklistoffset = offsetof(GuardProgram, weakrefs),
    .tp_methods = methods,
    .tp_members = members,
    .tp_new = program_new,
};

}  // namespace fineline
