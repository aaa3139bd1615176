// Private to lib/dist: what one rank writes to standard error, on its way to ours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stft::dist {

// Owns the reading end of the rank's pipe. Whole lines are passed on with a prefix; a live line (one that
// begins with a carriage return) is passed on as it is. Errors are held back for the launcher, which knows which rank
// failed first.
class RankOutput {
 public:
  RankOutput() = default;
  // `prefix` is put before every line.
  RankOutput(int fd, std::string prefix);
  RankOutput(RankOutput&& other) noexcept;
  RankOutput& operator=(RankOutput&& other) noexcept;
  ~RankOutput();

  int fd() const { return fd_; }
  bool read_some();  // one read; closes at the end of the stream; whether there was anything to read
  void drain();      // everything that is left without waiting for more
  // The last message that began with "error: ", with the lines that followed it.
  const std::string& last_error() const { return last_error_; }

 private:
  void pass_on(std::string_view line);

  int fd_ = -1;
  std::string prefix_;
  std::string partial_;
  std::string last_error_;
  bool in_error_ = false;
};

// A line of the launcher's own on standard error.
void write_line(std::string_view text);

}  // namespace stft::dist
