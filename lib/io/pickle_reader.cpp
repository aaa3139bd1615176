#include "io/pickle_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "io/utf8.h"

namespace stft::io {

// Runs the instructions. Nothing recurses, every length is checked against the input, and what a short input could
// blow up (values, stack, links, memo) is counted.
class PickleMachine {
 public:
  explicit PickleMachine(const PickleSource& source) : source_(source) {}

  PickleDocument run();

 private:
  static constexpr std::uint64_t kLinksPerValue = 8;

  [[noreturn]] void fail(std::string_view problem) const {
    throw UserError(fmt::format("{}: not a readable pickle: byte {}: {}", source_.origin, start_, problem));
  }

  std::string_view take(std::uint64_t count);
  std::uint64_t unsigned_integer(std::size_t bytes);
  std::string_view line();

  PickleValue& make(PickleKind kind);
  void push(PickleValue* value);
  PickleValue* pop();
  PickleValue* top();
  std::vector<PickleValue*> pop_to_mark();
  void add_item(PickleValue& container, const PickleValue* item);

  bool execute(unsigned char opcode);  // false: not an instruction of this group
  bool execute_scalar(unsigned char opcode);
  bool execute_container(unsigned char opcode);
  bool execute_object(unsigned char opcode);
  bool execute_memo(unsigned char opcode);

  void push_integer(std::int64_t value);
  void push_long();
  void push_float();
  void push_string(std::string_view text);
  void push_tuple(std::size_t count);
  void push_global(std::string_view module, std::string_view name);
  void push_applied(PickleKind kind);
  void extend(PickleKind kind, const std::vector<PickleValue*>& items);
  void set_state();
  void remember(std::uint64_t index);
  void recall(std::uint64_t index);
  void skip_protocol();

  const PickleSource& source_;
  std::size_t position_ = 0;
  std::size_t start_ = 0;  // of the current instruction
  std::uint64_t links_ = 0;
  PickleDocument document_;
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::vector<PickleValue*> memo_;
  std::uint64_t remembered_ = 0;
  PickleValue* none_ = nullptr;
  PickleValue* booleans_[2] = {nullptr, nullptr};
};

std::string_view PickleMachine::take(std::uint64_t count) {
  if (count > source_.bytes.size() - position_) fail("it ends in the middle");
  const std::string_view taken = source_.bytes.substr(position_, count);
  position_ += count;
  return taken;
}

std::uint64_t PickleMachine::unsigned_integer(std::size_t bytes) {
  const std::string_view raw = take(bytes);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
  return value;
}

std::string_view PickleMachine::line() {
  const std::size_t end = source_.bytes.find('\n', position_);
  if (end == std::string_view::npos) fail("it ends in the middle");
  const std::string_view text = take(end - position_);
  take(1);
  return text;
}

PickleValue& PickleMachine::make(PickleKind kind) {
  if (document_.values_.size() >= source_.limits.values) fail("it holds too many values");
  document_.values_.emplace_back().kind = kind;
  return document_.values_.back();
}

void PickleMachine::push(PickleValue* value) {
  if (stack_.size() >= source_.limits.values) fail("its stack grows too high");
  stack_.push_back(value);
}

PickleValue* PickleMachine::top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("its stack is empty");
  return stack_.back();
}

PickleValue* PickleMachine::pop() {
  PickleValue* value = top();
  stack_.pop_back();
  return value;
}

std::vector<PickleValue*> PickleMachine::pop_to_mark() {
  if (marks_.empty()) fail("a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<PickleValue*> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

void PickleMachine::add_item(PickleValue& container, const PickleValue* item) {
  if (++links_ > kLinksPerValue * source_.limits.values) fail("it holds too many values");
  container.depth = std::max(container.depth, item->depth + 1);
  if (container.depth > source_.limits.nesting) fail("it is nested too deep");
  container.items.push_back(item);
}

void PickleMachine::push_integer(std::int64_t value) {
  PickleValue& node = make(PickleKind::kInt);
  node.integer = value;
  push(&node);
}

void PickleMachine::push_long() {
  const auto size = static_cast<std::size_t>(unsigned_integer(1));
  if (size > 8) fail("an integer of more than 64 bits");
  std::uint64_t value = unsigned_integer(size);
  if (size > 0 && size < 8 && (value >> (8 * size - 1) & 1) != 0) value |= ~std::uint64_t{0} << (8 * size);
  push_integer(static_cast<std::int64_t>(value));
}

void PickleMachine::push_float() {
  std::uint64_t bits = 0;
  for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
  PickleValue& node = make(PickleKind::kFloat);
  node.number = std::bit_cast<double>(bits);
  push(&node);
}

void PickleMachine::push_string(std::string_view text) {
  if (first_invalid_utf8(text)) fail("a string is not valid UTF-8");
  PickleValue& node = make(PickleKind::kString);
  node.text = text;
  push(&node);
}

void PickleMachine::push_tuple(std::size_t count) {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() - floor < count) fail("its stack is empty");
  PickleValue& node = make(PickleKind::kTuple);
  for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) add_item(node, stack_[i]);
  stack_.resize(stack_.size() - count);
  push(&node);
}

void PickleMachine::push_global(std::string_view module, std::string_view name) {
  std::string text = fmt::format("{}.{}", module, name);
  if (std::find(source_.globals.begin(), source_.globals.end(), text) == source_.globals.end()) {
    constexpr std::size_t kShown = 200;
    if (text.size() > kShown) text = text.substr(0, kShown) + "...";
    for (char& byte : text) {
      if (byte < 0x20 || byte > 0x7e) byte = '?';
    }
    fail(fmt::format("'{}' is not a class or function that belongs here", text));
  }
  PickleValue& node = make(PickleKind::kGlobal);
  node.text = std::move(text);
  push(&node);
}

// A class or function applied to a tuple of arguments.
void PickleMachine::push_applied(PickleKind kind) {
  const PickleValue* arguments = pop();
  const PickleValue* applied = pop();
  if (arguments->kind != PickleKind::kTuple) fail("arguments must be a tuple");
  if (applied->kind != PickleKind::kGlobal) fail("only a class or function can be called");
  PickleValue& node = make(kind);
  node.text = applied->text;
  add_item(node, arguments);
  push(&node);
}

void PickleMachine::extend(PickleKind kind, const std::vector<PickleValue*>& items) {
  PickleValue& container = *top();
  if (container.kind != kind) fail(kind == PickleKind::kDict ? "a dict is missing" : "a list is missing");
  if (kind == PickleKind::kDict && items.size() % 2 != 0) fail("a key without a value");
  for (const PickleValue* item : items) add_item(container, item);
}

void PickleMachine::set_state() {
  const PickleValue* state = pop();
  PickleValue& object = *top();
  if (object.kind != PickleKind::kObject || object.items.size() != 1) fail("a state without an object that needs one");
  add_item(object, state);
}

void PickleMachine::remember(std::uint64_t index) {
  // A writer remembers a value by an instruction, so no index reaches the number of bytes.
  if (index >= source_.limits.values || index >= source_.bytes.size()) fail("its memo is too large");
  if (index >= memo_.size()) memo_.resize(index + 1, nullptr);
  if (memo_[index] == nullptr) ++remembered_;
  memo_[index] = top();
}

void PickleMachine::recall(std::uint64_t index) {
  if (index >= memo_.size() || memo_[index] == nullptr) fail("it refers to a value that it does not hold");
  push(memo_[index]);
}

void PickleMachine::skip_protocol() {
  const std::uint64_t protocol = unsigned_integer(1);
  if (protocol < 2 || protocol > 5) fail(fmt::format("protocol {}; 2 to 5 are known", protocol));
}

bool PickleMachine::execute_scalar(unsigned char opcode) {
  switch (opcode) {
    case 'N':
      if (none_ == nullptr) none_ = &make(PickleKind::kNone);
      push(none_);
      return true;
    case 0x88:    // NEWTRUE
    case 0x89: {  // NEWFALSE
      const bool truth = opcode == 0x88;
      PickleValue*& value = booleans_[truth ? 1 : 0];
      if (value == nullptr) {
        value = &make(PickleKind::kBool);
        value->integer = truth ? 1 : 0;
      }
      push(value);
      return true;
    }
    case 'K':
      push_integer(static_cast<std::int64_t>(unsigned_integer(1)));
      return true;
    case 'M':
      push_integer(static_cast<std::int64_t>(unsigned_integer(2)));
      return true;
    case 'J':
      push_integer(static_cast<std::int32_t>(unsigned_integer(4)));
      return true;
    case 0x8a:  // LONG1
      push_long();
      return true;
    case 'G':
      push_float();
      return true;
    case 'X':
      push_string(take(unsigned_integer(4)));
      return true;
    case 0x8c:  // SHORT_BINUNICODE
      push_string(take(unsigned_integer(1)));
      return true;
    case 0x8d:  // BINUNICODE8
      push_string(take(unsigned_integer(8)));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::execute_container(unsigned char opcode) {
  switch (opcode) {
    case '(':
      if (marks_.size() >= static_cast<std::size_t>(source_.limits.nesting)) fail("it is nested too deep");
      marks_.push_back(stack_.size());
      return true;
    case ')':
      push(&make(PickleKind::kTuple));
      return true;
    case ']':
      push(&make(PickleKind::kList));
      return true;
    case '}':
      push(&make(PickleKind::kDict));
      return true;
    case 0x85:  // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87:
      push_tuple(opcode - 0x84u);
      return true;
    case 't': {
      if (marks_.empty()) fail("a mark is missing");
      const std::size_t count = stack_.size() - marks_.back();
      push_tuple(count);
      marks_.pop_back();
      return true;
    }
    case 'a':
      extend(PickleKind::kList, {pop()});
      return true;
    case 'e':
      extend(PickleKind::kList, pop_to_mark());
      return true;
    case 's': {
      PickleValue* value = pop();
      PickleValue* key = pop();
      extend(PickleKind::kDict, {key, value});
      return true;
    }
    case 'u':
      extend(PickleKind::kDict, pop_to_mark());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::execute_object(unsigned char opcode) {
  switch (opcode) {
    case 'c': {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const PickleValue* name = pop();
      const PickleValue* module = pop();
      if (name->kind != PickleKind::kString || module->kind != PickleKind::kString) fail("a class must have a name");
      push_global(module->text, name->text);
      return true;
    }
    case 0x81:  // NEWOBJ
      push_applied(PickleKind::kObject);
      return true;
    case 'R':
      push_applied(PickleKind::kCall);
      return true;
    case 'b':
      set_state();
      return true;
    case 'Q': {
      const PickleValue* id = pop();
      PickleValue& node = make(PickleKind::kPersistentId);
      add_item(node, id);
      push(&node);
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::execute_memo(unsigned char opcode) {
  switch (opcode) {
    case 0x94:  // MEMOIZE
      remember(remembered_);
      return true;
    case 'q':
      remember(unsigned_integer(1));
      return true;
    case 'r':
      remember(unsigned_integer(4));
      return true;
    case 'h':
      recall(unsigned_integer(1));
      return true;
    case 'j':
      recall(unsigned_integer(4));
      return true;
    case 0x80:
      skip_protocol();
      return true;
    case 0x95:  // FRAME: the instructions follow without a break
      take(8);
      return true;
    default:
      return false;
  }
}

bool PickleMachine::execute(unsigned char opcode) {
  return execute_scalar(opcode) || execute_container(opcode) || execute_object(opcode) || execute_memo(opcode);
}

PickleDocument PickleMachine::run() {
  if (source_.bytes.size() > source_.limits.bytes) {
    fail(fmt::format("{} bytes; at most {} are read", source_.bytes.size(), source_.limits.bytes));
  }
  if (source_.bytes.empty() || source_.bytes[0] != '\x80') fail("it does not start as a pickle of protocol 2 or later");
  while (true) {
    start_ = position_;
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    if (opcode == '.') break;
    if (!execute(opcode)) fail(fmt::format("unknown instruction 0x{:02x}", opcode));
  }
  if (stack_.size() != 1 || !marks_.empty()) fail("it does not end with one value");
  if (position_ != source_.bytes.size()) fail("bytes follow its end");
  document_.root_ = stack_.back();
  return std::move(document_);
}

PickleDocument read_pickle(const PickleSource& source) {
  return PickleMachine(source).run();
}

namespace {

// Shared values could unfold into many: what comes out is counted.
class PlainCopy {
 public:
  explicit PlainCopy(const std::string& origin) : origin_(origin) {}

  PythonValue copy(const PickleValue& value, int nesting) {
    ++values_;
    bytes_ += value.text.size();
    if (values_ > kValues || bytes_ > kBytes || nesting > kNesting) {
      throw UserError(fmt::format("{}: the value is too large", origin_));
    }
    switch (value.kind) {
      case PickleKind::kNone:
        return {PythonNone{}};
      case PickleKind::kBool:
        return {value.integer != 0};
      case PickleKind::kInt:
        return {value.integer};
      case PickleKind::kFloat:
        return {value.number};
      case PickleKind::kString:
        return {value.text};
      case PickleKind::kTuple:
        return {PythonTuple{items(value, nesting)}};
      case PickleKind::kList:
        return {PythonList{items(value, nesting)}};
      default:
        throw UserError(fmt::format("{}: {} is no plain value; only None, bool, int, float, str, tuple and list are",
                                    origin_, value.kind == PickleKind::kDict ? "a dict" : "'" + value.text + "'"));
    }
  }

 private:
  static constexpr std::uint64_t kValues = 1'000'000;
  static constexpr std::uint64_t kBytes = std::uint64_t{1} << 28;
  static constexpr int kNesting = 64;

  std::vector<PythonValue> items(const PickleValue& value, int nesting) {
    std::vector<PythonValue> copies;
    for (const PickleValue* item : value.items) copies.push_back(copy(*item, nesting + 1));
    return copies;
  }

  const std::string& origin_;
  std::uint64_t values_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace

PythonValue to_python(const PickleValue& value, const std::string& origin) {
  return PlainCopy(origin).copy(value, 0);
}

}  // namespace stft::io
