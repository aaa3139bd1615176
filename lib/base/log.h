// The run's log on standard error: the only global of the project. Standard output is for results.
#pragma once

#include <string>
#include <string_view>

namespace stft::log {

// What this process shows. Messages of `info` come from rank 0 only; warnings and errors from every rank.
struct Settings {
  bool shows_info = true;
  bool is_terminal = false;  // standard error (the launcher's, for a rank) is a terminal: live line and colours
  bool uses_colour = false;
};

void configure(Settings settings);
const Settings& settings();

// One line on standard error. A live line that stands there is cleared first. Thread-safe.
void info(std::string_view message);
void warn(std::string_view message);
void error(std::string_view message);

// Replaces the live line (terminals only; elsewhere nothing is shown). Empty text clears it.
void live(std::string_view text);

}  // namespace stft::log
