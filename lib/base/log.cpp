#include "base/log.h"

#include <unistd.h>

#include <mutex>

namespace stft::log {
namespace {

struct State {
  std::mutex mutex;
  Settings settings;
  bool has_live_line = false;
};

State& state() {
  static State instance;
  return instance;
}

// One write call for the whole text, so that lines of several threads and processes do not mix.
void write_all(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (n <= 0) {
      return;
    }
    done += static_cast<size_t>(n);
  }
}

constexpr std::string_view kClearLine = "\r\033[K";

void line(std::string_view colour, std::string_view label, std::string_view message) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  std::string text;
  if (s.has_live_line) {
    text.append(kClearLine);
    s.has_live_line = false;
  }
  if (!label.empty()) {
    if (s.settings.uses_colour) {
      text.append(colour).append(label).append("\033[0m");
    } else {
      text.append(label);
    }
  }
  text.append(message).append("\n");
  write_all(text);
}

}  // namespace

void configure(Settings settings) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.settings = settings;
}

const Settings& settings() {
  return state().settings;
}

void info(std::string_view message) {
  if (state().settings.shows_info) {
    line("", "", message);
  }
}

void warn(std::string_view message) {
  line("\033[33m", "warning: ", message);
}

void error(std::string_view message) {
  line("\033[31m", "error: ", message);
}

void live(std::string_view text) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (!s.settings.shows_info || !s.settings.is_terminal) {
    return;
  }
  std::string out(kClearLine);
  out.append(text);
  s.has_live_line = !text.empty();
  write_all(out);
}

}  // namespace stft::log
