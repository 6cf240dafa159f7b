// A guard program: its steps, what was learnt about them, and the check of a call.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "object.h"
#include "shortcut.h"
#include "step.h"

namespace fineline {

enum class Outcome : uint8_t { Hit, Miss, Error };

// Which steps the quiet pass evaluates. Loud steps, and all that depend on them, may run Python code; they come after the quiet ones,
// on owned references. A plan never changes, so a pass that Python code re-enters keeps the one it has.
struct Plan {
  std::vector<int> quiet;
  std::vector<int> loud;
  std::vector<int> kept;  // registers written by the quiet pass that loud steps or outputs read
};

// Nanoseconds that each step takes if nothing is remembered, -1 for those after a failed one; and those of a warm check, -1 if a step fails.
struct Costs {
  std::vector<double> steps;
  double check;
};

class Program {
 public:
  // Null with an error set if the steps are malformed. Borrows the payloads from `steps`.
  static std::unique_ptr<Program> parse(Py_ssize_t n_roots, PyObject* steps, PyObject* outputs);

  // On a hit, `outputs` receives new references. Error: Python raised something other than an Exception.
  Outcome check(PyObject* const* roots, PyObject** outputs);

  // Index of the first failing step, -1 if all pass, -2 with an error set.
  int failing(PyObject* const* roots);

  // Evaluates steps that only Python can judge once: they may run users' code. Nothing with an error set.
  std::optional<Costs> costs(PyObject* const* roots);

  size_t n_outputs() const { return outputs_.size(); }
  // Counts of words in the latest table, tables, table hits, full passes and registers evaluated anew on each call: for tests and reports.
  PyObject* statistics() const;

  // What shortcuts read. `readers[r]`: the steps whose source is register r; `of_type[t]`: the steps that look something
  // up in type t, for all types that the payloads keep alive.
  std::vector<Step> steps;
  std::vector<std::vector<int>> readers;
  std::unordered_map<PyTypeObject*, std::vector<int>> of_type;
  std::vector<char> loud;             // by step
  std::vector<char> fickle;           // by step: what it reads changes often, so no table relies on it
  const Plan& plan() const { return *plan_; }
  size_t n_registers() const { return readers.size(); }
  // Whether the program itself keeps `type` alive.
  bool holds_type(PyTypeObject* type) const { return of_type.count(type) != 0; }

 private:
  bool number_registers(Py_ssize_t n_roots, PyObject* outputs);
  void count_dependents();
  void make_plan();
  void promote(int step);
  Shortcut* find_shortcut(PyObject* const* roots);
  bool quiet_pass(PyObject* const* roots, PyObject*** registers);
  double quickest_quiet_pass(PyObject* const* roots);
  Outcome loud_pass(PyObject* const* roots, PyObject** quiet, PyObject** outputs);
  void learn(Shortcut* stale, PyObject* const* roots);
  bool note_changed_roots(PyObject* const* roots);
  bool note_changed_steps(const Shortcut& stale);
  size_t most_shortcuts() const;

  std::vector<int> outputs_;
  std::vector<int> ambient_;      // steps
  std::vector<int> dependents_;   // by step: how many steps build on its result
  std::vector<int> changes_;      // by step: how often it made a table useless
  std::vector<PyObject*> scratch_;
  std::shared_ptr<const Plan> plan_;
  std::vector<std::unique_ptr<Shortcut>> shortcuts_;
  size_t recent_ = 0;
  Py_ssize_t hits_ = 0;
  Py_ssize_t full_passes_ = 0;
};

}  // namespace fineline
