// A guard program: its steps, what was learnt about them, and the check of a call.
#include "program.h"

#include <algorithm>
#include <chrono>

namespace fineline {

namespace {

// A register that changes often is read anew in each call, if no more steps than this build on it; if more do, a new table is worth its
// price.
constexpr int kSmall = 64;
constexpr size_t kMostTables = 64;
constexpr size_t kMostTableSteps = 200'000;

bool reads_source(Op op) {
  constexpr Op sourceless[] = {Op::Root, Op::Pin, Op::TypeAttr, Op::TypeLacks, Op::Distinct, Op::Storages, Op::Ambient, Op::Relation};
  return std::ranges::find(sourceless, op) == std::end(sourceless);
}

// Whether a signal handler or another thread has raised the exception that is set; it stays set. Without a traceback C has raised it.
bool from_outside() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool outside = false;
  if (traceback) {
    PyErr_NormalizeException(&type, &value, &traceback);
    PyException_SetTraceback(value, traceback);
    Ref module(PyImport_ImportModule("fineline.bytecode.asynchronous"));
    Ref answer(module ? PyObject_CallMethod(module.get(), "from_outside", "O", value) : nullptr);
    outside = answer && PyObject_IsTrue(answer.get()) == 1;
    PyErr_Clear();
  }
  PyErr_Restore(type, value, traceback);
  return outside;
}

// After a call into Python failed: an Exception is a miss, anything else, and what comes from outside of the code, goes up.
Outcome failed() {
  if (!PyErr_Occurred()) return Outcome::Miss;
  if (!PyErr_ExceptionMatches(PyExc_Exception) || from_outside()) return Outcome::Error;
  PyErr_Clear();
  return Outcome::Miss;
}

using Clock = std::chrono::steady_clock;

// How often a step is timed, and how often it is evaluated each time.
constexpr int kSeries = 5, kTimes = 16;

double nanoseconds_since(Clock::time_point began) { return std::chrono::duration<double, std::nano>(Clock::now() - began).count(); }

}  // namespace

std::unique_ptr<Program> Program::parse(Py_ssize_t n_roots, PyObject* tuples, PyObject* outputs) {
  auto program = std::make_unique<Program>();
  program->steps.resize(PyTuple_GET_SIZE(tuples));
  for (size_t i = 0; i < program->steps.size(); i++) {
    if (!parse_step(PyTuple_GET_ITEM(tuples, i), program->steps[i])) return nullptr;
  }
  if (!program->number_registers(n_roots, outputs)) return nullptr;
  program->loud.resize(program->steps.size());
  program->fickle.resize(program->steps.size());
  program->changes_.resize(program->steps.size());
  program->count_dependents();
  program->make_plan();
  return program;
}

// Numbers registers in the order they are written, and refuses what guards.evaluate.validate refuses.
bool Program::number_registers(Py_ssize_t n_roots, PyObject* outputs) {
  // By the number that the steps give a register; -1: not written so far. No program has more registers than steps.
  std::vector<int> numbers(steps.size(), -1);
  auto is_number = [&numbers](int number) { return number >= 0 && static_cast<size_t>(number) < numbers.size(); };
  auto renumber = [&](int& number) {
    if (!is_number(number) || numbers[number] < 0) return false;
    number = numbers[number];
    return true;
  };
  for (size_t i = 0; i < steps.size(); i++) {
    Step& step = steps[i];
    if (!reads_source(step.op)) step.src = -1;
    bool written = !reads_source(step.op) || renumber(step.src);
    written = written && std::all_of(step.registers.begin(), step.registers.end(), renumber);
    if (!written) return refuse(PyExc_ValueError, "guard step %R reads a register that is not written before it", step.tuple);
    if (step.op == Op::Root && (step.number < 0 || step.number >= n_roots)) {
      return refuse(PyExc_ValueError, "there is no root %zd", step.number);
    }
    if (is_access(step.op)) {
      if (!is_number(step.dst) || numbers[step.dst] >= 0) {
        return refuse(PyExc_ValueError, "guard step %R has a bad or used destination", step.tuple);
      }
      step.dst = numbers[step.dst] = static_cast<int>(readers.size());
      readers.emplace_back();
    } else {
      step.dst = -1;
    }
    if (step.src >= 0) readers[step.src].push_back(static_cast<int>(i));
    if (step.type && step.op != Op::Member) of_type[step.type];
    if (step.op == Op::TypeAttr || step.op == Op::TypeLacks) of_type[step.type].push_back(static_cast<int>(i));
    if (step.op == Op::Ambient) ambient_.push_back(static_cast<int>(i));
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); i++) {
    outputs_.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(outputs, i))));
    if (PyErr_Occurred()) return false;
    if (!renumber(outputs_.back())) return refuse(PyExc_ValueError, "an output register is never written");
  }
  scratch_.resize(readers.size());
  return true;
}

void Program::count_dependents() {
  dependents_.resize(steps.size());
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].dst < 0) continue;
    for (int reader : readers[steps[i].dst]) dependents_[i] += 1 + dependents_[reader];
  }
}

void Program::make_plan() {
  auto plan = std::make_shared<Plan>();
  std::vector<char> loud_register(n_registers()), kept(n_registers());
  for (size_t i = 0; i < steps.size(); i++) {
    const Step& step = steps[i];
    if (step.op == Op::Ambient) continue;
    loud[i] = step.python || (step.src >= 0 && loud_register[step.src]);
    for (int other : step.registers) loud[i] = loud[i] || loud_register[other];
    if (step.dst >= 0) loud_register[step.dst] = loud[i];
    (loud[i] ? plan->loud : plan->quiet).push_back(static_cast<int>(i));
    if (!loud[i]) continue;
    if (step.src >= 0) kept[step.src] = true;
    for (int other : step.registers) kept[other] = true;
  }
  for (int output : outputs_) kept[output] = true;
  for (size_t reg = 0; reg < kept.size(); reg++) {
    if (kept[reg] && !loud_register[reg]) plan->kept.push_back(static_cast<int>(reg));
  }
  plan_ = std::move(plan);
}

// From now on this step is left to Python: a value came up that only Python can judge.
void Program::promote(int step) {
  steps[step].python = true;
  make_plan();
  shortcuts_.clear();
}

Outcome Program::check(PyObject* const* roots, PyObject** outputs) {
  for (int number : ambient_) {
    if (check_ambient(steps[number]) <= 0) return failed();
  }
  PyObject** registers;
  if (!quiet_pass(roots, &registers)) return Outcome::Miss;
  if (!plan_->loud.empty()) return loud_pass(roots, registers, outputs);
  for (size_t i = 0; i < outputs_.size(); i++) outputs[i] = Py_NewRef(registers[outputs_[i]]);
  return Outcome::Hit;
}

Shortcut* Program::find_shortcut(PyObject* const* roots) {
  if (recent_ < shortcuts_.size() && shortcuts_[recent_]->fits(roots)) return shortcuts_[recent_].get();
  for (size_t i = 0; i < shortcuts_.size(); i++) {
    if (shortcuts_[i]->fits(roots)) {
      recent_ = i;
      return shortcuts_[i].get();
    }
  }
  return nullptr;
}

// Whether all quiet steps hold. The registers are borrowed, and valid until anything else runs.
bool Program::quiet_pass(PyObject* const* roots, PyObject*** registers) {
  Shortcut* shortcut = find_shortcut(roots);
  if (shortcut) {
    Verdict verdict = shortcut->run(*this, roots);
    if (verdict == Verdict::Fail) return false;
    if (verdict == Verdict::Pass) {
      hits_++;
      *registers = shortcut->registers.data();
      return true;
    }
  }
  full_passes_++;
  for (size_t next = 0; next < plan_->quiet.size();) {
    int number = plan_->quiet[next++];
    Verdict verdict = evaluate_step(steps[number], scratch_.data(), roots);
    if (verdict == Verdict::Fail) return false;
    if (verdict == Verdict::Python) {
      promote(number);
      shortcut = nullptr;
      next = 0;
    }
  }
  learn(shortcut, roots);
  *registers = scratch_.data();
  return true;
}

// Python code runs here: other threads and re-entrant calls may use this program meanwhile, so all that is needed afterwards is owned.
Outcome Program::loud_pass(PyObject* const* roots, PyObject** quiet, PyObject** outputs) {
  std::shared_ptr<const Plan> plan = plan_;
  std::vector<PyObject*> registers(n_registers());
  std::vector<Ref> owned;
  for (int reg : plan->kept) {
    registers[reg] = quiet[reg];
    owned.push_back(new_ref(quiet[reg]));
  }
  for (int number : plan->loud) {
    if (evaluate_step_anyhow(steps[number], registers.data(), roots, owned) <= 0) return failed();
  }
  for (size_t i = 0; i < outputs_.size(); i++) outputs[i] = Py_NewRef(registers[outputs_[i]]);
  return Outcome::Hit;
}

int Program::failing(PyObject* const* roots) {
  std::vector<PyObject*> registers(n_registers());
  std::vector<Ref> owned;
  for (size_t i = 0; i < steps.size(); i++) {
    if (evaluate_step_anyhow(steps[i], registers.data(), roots, owned) > 0) continue;
    return failed() == Outcome::Error ? -2 : static_cast<int>(i);
  }
  return -1;
}

std::optional<Costs> Program::costs(PyObject* const* roots) {
  Costs costs{std::vector<double>(steps.size(), -1), -1};
  std::vector<PyObject*> registers(n_registers());
  std::vector<Ref> owned;
  bool all_held = true;
  for (size_t i = 0; i < steps.size(); i++) {
    const size_t before = owned.size();
    const bool python = steps[i].op != Op::Ambient && evaluate_step(steps[i], registers.data(), roots) == Verdict::Python;
    int held = 1;
    for (int series = 0; series < (python ? 1 : kSeries); series++) {
      const int times = python ? 1 : kTimes;
      const Clock::time_point began = Clock::now();
      for (int time = 0; time < times; time++) {
        // The latest result stays, because other steps read it.
        while (owned.size() > before) owned.pop_back();
        held = evaluate_step_anyhow(steps[i], registers.data(), roots, owned);
        if (held < 0 && failed() == Outcome::Error) return std::nullopt;
      }
      const double each = nanoseconds_since(began) / times;
      if (costs.steps[i] < 0 || each < costs.steps[i]) costs.steps[i] = each;
    }
    all_held = all_held && held > 0;
    // Steps after a wrong number of items can be evaluated; those after a wrong type rely on it.
    const bool counts = steps[i].op == Op::Len || steps[i].op == Op::Keys || steps[i].op == Op::Absent;
    if (held <= 0 && !counts) break;
  }
  if (all_held) costs.check = quickest_quiet_pass(roots);
  if (costs.check >= 0) {
    for (int number : plan_->loud) costs.check += costs.steps[number];
  }
  return costs;
}

// Nanoseconds of a pass that remembers those before it; -1 if a step does not hold.
double Program::quickest_quiet_pass(PyObject* const* roots) {
  double quickest = -1;
  for (int pass = 0; pass < kSeries; pass++) {
    PyObject** registers;
    const Clock::time_point began = Clock::now();
    for (int number : ambient_) check_ambient(steps[number]);
    if (!quiet_pass(roots, &registers)) return -1;
    const double taken = nanoseconds_since(began);
    if (quickest < 0 || taken < quickest) quickest = taken;
  }
  return quickest;
}

size_t Program::most_shortcuts() const { return std::clamp<size_t>(kMostTableSteps / (steps.size() + 1), 2, kMostTables); }

// After a full pass that succeeded although the table for its roots (null: there was none) could not tell.
void Program::learn(Shortcut* stale, PyObject* const* roots) {
  if (stale ? note_changed_steps(*stale) : note_changed_roots(roots)) {
    shortcuts_.clear();
    stale = nullptr;
  }
  if (!stale) recent_ = shortcuts_.size() < most_shortcuts() ? shortcuts_.size() : (recent_ + 1) % shortcuts_.size();
  if (recent_ == shortcuts_.size()) shortcuts_.emplace_back();
  shortcuts_[recent_] = std::make_unique<Shortcut>(*this, scratch_.data());
}

// Whether a root that differs from the last call's had better be read anew each time. Roots with much behind them (modules) get a table
// each, as long as there are few.
bool Program::note_changed_roots(PyObject* const* roots) {
  if (shortcuts_.empty()) return false;
  bool noted = false, many = shortcuts_.size() >= most_shortcuts();
  for (const Shortcut::Root& root : shortcuts_[recent_]->roots) {
    if (roots[root.position] != root.object && (many || dependents_[root.step] <= kSmall)) {
      fickle[root.step] = noted = true;
    }
  }
  return noted;
}

// The same for what was reached from the roots, the second time it changes.
bool Program::note_changed_steps(const Shortcut& stale) {
  bool noted = false, any = false;
  auto blame = [&](int step) {
    any = true;
    if (++changes_[step] >= 2 && dependents_[step] <= kSmall) fickle[step] = noted = true;
  };
  for (int number : plan_->quiet) {
    const Step& step = steps[number];
    if (step.dst < 0 || !stale.known(step.dst) || scratch_[step.dst] == stale.registers[step.dst]) continue;
    if (step.src < 0 || scratch_[step.src] == stale.registers[step.src]) blame(number);
  }
  if (!any && stale.blamed >= 0) blame(stale.blamed);
  return noted;
}

PyObject* Program::statistics() const {
  Py_ssize_t words = shortcuts_.empty() ? 0 : shortcuts_[recent_]->size(), tables = shortcuts_.size();
  Py_ssize_t fickle_steps = std::count(fickle.begin(), fickle.end(), 1), loud_steps = plan_->loud.size();
  return Py_BuildValue(
      "{sn sn sn sn sn sn}", "words", words, "tables", tables, "hits", hits_, "full_passes", full_passes_, "fickle", fickle_steps,
      "loud", loud_steps);
}

}  // namespace fineline
