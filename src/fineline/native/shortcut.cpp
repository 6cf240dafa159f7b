// Running a shortcut table, and bringing it up to date where a version changed but what the steps ask did not.
#include "shortcut.h"

#include <algorithm>

#include "program.h"

namespace fineline {

// The first word that is not as expected, or `end`. This loop is where an unchanged call spends its time: written so that a word costs
// one load of each side and one branch that is not taken.
Shortcut::Word* Shortcut::first_changed(Word* word, const Word* end) {
#pragma GCC unroll 8
  for (; word != end; word++) {
    if (__builtin_expect(load_word(word->at) != word->expected, false)) return word;
  }
  return word;
}

bool Shortcut::fits(PyObject* const* arguments) const {
  return std::all_of(roots.begin(), roots.end(), [arguments](const Root& root) { return arguments[root.position] == root.object; });
}

Verdict Shortcut::run(Program& program, PyObject* const* arguments) {
  blamed = -1;
  Verdict verdict = run_steps(program, early_, arguments);
  if (verdict != Verdict::Pass) return verdict;
  for (TypeVersion& entry : versions_) {
    if (entry.type->tp_version_tag == entry.version) continue;
    verdict = confirm_steps(program, program.of_type.at(entry.type));
    if (verdict != Verdict::Pass) return verdict;
    if (!has_version(entry.type)) return Verdict::Python;
    entry.version = entry.type->tp_version_tag;
  }
  Word *begin = words_.data(), *end = begin + words_.size();
  for (Word* word = first_changed(begin, end); word != end; word = first_changed(word + 1, end)) {
    const Origin& origin = origins_[word - begin];
    blamed = origin.step;
    if (origin.dict >= 0) {
      verdict = confirm_steps(program, program.readers[origin.dict]);
      if (verdict != Verdict::Pass) return verdict;
      DictStamp& stamp = stamps_[origin.dict];
      if (!stamp.take(registers[origin.dict])) return Verdict::Python;
      *word = {stamp.at(), load_word(stamp.at())};
      continue;
    }
    const Step& step = program.steps[blamed];
    bool fails = !is_access(step.op) && step.src >= 0 && evaluate_step(step, registers.data(), arguments) == Verdict::Fail;
    return fails ? Verdict::Fail : Verdict::Python;
  }
  verdict = run_steps(program, late_, arguments);
  for (Sharing& sharing : sharings_) {
    if (verdict == Verdict::Pass && !shared_alike(program, sharing)) verdict = Verdict::Fail;
  }
  return verdict;
}

Verdict Shortcut::run_steps(Program& program, const std::vector<int>& steps, PyObject* const* arguments) {
  for (int number : steps) {
    Verdict verdict = evaluate_step(program.steps[number], registers.data(), arguments);
    if (verdict != Verdict::Pass) return verdict;
  }
  return Verdict::Pass;
}

bool Shortcut::shared_alike(Program& program, Sharing& sharing) {
  const Step& step = program.steps[sharing.step];
  for (size_t i : sharing.unknown) {
    sharing.keys[i] = storage_key(registers[step.registers[i]]);
    if (!sharing.keys[i]) return false;
  }
  if (sharing.unknown.size() > kFew) return shared_as(sharing.keys, step.pattern);
  for (size_t i : sharing.unknown) {
    for (size_t j = 0; j < sharing.keys.size(); j++) {
      if ((sharing.keys[i] == sharing.keys[j]) != (step.pattern[i] == step.pattern[j])) return false;
    }
  }
  return true;
}

Verdict Shortcut::confirm_steps(Program& program, const std::vector<int>& numbers) {
  Verdict verdict = Verdict::Pass;
  for (auto number = numbers.begin(); number != numbers.end() && verdict == Verdict::Pass; number++) {
    verdict = confirm_step(program, *number);
  }
  return verdict;
}

// Evaluates by value one step whose source is alive. A changed result makes the table useless, unless it fails a check right away; an
// unchanged address may be another object, so what was taken for granted of it is confirmed in turn.
Verdict Shortcut::confirm_step(Program& program, int number) {
  Step& step = program.steps[number];
  if (program.loud[number] || (step.dst >= 0 && !known(step.dst))) return Verdict::Pass;
  for (int other : step.registers) {
    if (!known(other)) return Verdict::Pass;  // evaluated late anyway
  }
  PyObject* before = step.dst >= 0 ? registers[step.dst] : nullptr;
  Verdict verdict = evaluate_step(step, registers.data(), nullptr);
  if (verdict != Verdict::Pass || step.dst < 0) return verdict;
  if (registers[step.dst] == before) return confirm(program, step.dst);
  verdict = Verdict::Python;
  for (int reader : program.readers[step.dst]) {
    Step& check = program.steps[reader];
    if (is_access(check.op) || program.loud[reader] || !check.registers.empty()) continue;
    if (evaluate_step(check, registers.data(), nullptr) == Verdict::Fail) verdict = Verdict::Fail;
  }
  registers[step.dst] = before;
  return verdict;
}

Verdict Shortcut::confirm(Program& program, int reg) {
  PyObject* object = registers[reg];
  if (Py_TYPE(object) != types_[reg]) return Verdict::Python;
  int word = word_of_dict_[reg];
  if (word >= 0 && PyDict_Check(object) && load_word(words_[word].at) == words_[word].expected) return Verdict::Pass;
  return confirm_steps(program, program.readers[reg]);
}

}  // namespace fineline
