// For tests: a process that speaks QMP and models what the fabric driver needs of QEMU: ports,
// memory backends, CXL memory that is plugged and unplugged, one client at a time. A second socket,
// SOCKET.evict, takes the same commands, and the one that evicts the first one's client; the next
// of those is greeted once the client that asked for it is gone.
//
// A process of its own, so that it has a pid to be watched and killed by. What it answers was seen
// of QEMU 11.1.3. Ends with its object, and with the test.
#ifndef CXLPOOL_TEST_RIGS_FAKE_QEMU_H_
#define CXLPOOL_TEST_RIGS_FAKE_QEMU_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/support/unique_fd.h"

namespace cxlpool::fm {

class FakeQemu {
 public:
  // Listens on `socket` when the constructor returns. Port "p<slot>" for each slot. Aborts where
  // the machine does not let it start.
  FakeQemu(const std::string& socket, const std::vector<uint32_t>& slots);
  ~FakeQemu();
  FakeQemu(const FakeQemu&) = delete;
  FakeQemu& operator=(const FakeQemu&) = delete;

  pid_t pid() const { return pid_; }

  // The guest powers the slot off: what sits in it is gone, asked for or not.
  void Eject(uint32_t slot);

  // The same, but DEVICE_DELETED comes with Announce alone: QEMU frees what it unplugged once
  // nothing refers to it any more, which is seen to take up to 30 ms.
  void Vanish(uint32_t slot);
  void Announce();

  // The guest writes Slot Control without powering the slot off first: the device is in no list any
  // more and no event ever comes, but its memory stays mapped.
  void Botch(uint32_t slot);

  // The next `times` requests to unplug are refused because the guest is busy.
  void BeBusy(uint32_t times);

  // Ends the connection of the client that there is.
  void HangUp();

  // From this command on nothing that the client sends is done, as behind one that takes long,
  // until the next client of that socket comes: before that one is greeted.
  void Hold(const std::string& command);
  // Returns once that command is there.
  void AwaitHeld();

  // SIGSTOP: answers nothing more, yet holds what it has.
  void Freeze();

  // SIGKILL, and waits. Again: no effect.
  void Kill();

 private:
  void Order(const std::string& order);

  pid_t pid_ = -1;
  UniqueFd control_;
};

}  // namespace cxlpool::fm

#endif  // CXLPOOL_TEST_RIGS_FAKE_QEMU_H_
