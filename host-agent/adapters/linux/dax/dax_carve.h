// Makes DAX devices of exact ranges of a DAX region, and removes them.
//
// For the one thread that changes the machine: the kernel shows of a new DAX device only that it is
// the youngest, so two makers can take each other's. What was written is always read back: the
// kernel accepts some ranges without effect. No DAX device that has bytes is touched except for the
// one that is named. How the kernel's files behave was seen on Linux 6.12 and 7.2.
#ifndef CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_CARVE_H_
#define CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_CARVE_H_

#include <string>

#include "absl/status/status.h"
#include "host-agent/adapters/linux/dax/dax_region.h"
#include "host-agent/adapters/linux/machine/host_files.h"
#include "host-agent/support/deadline.h"

namespace cxlpool::agent {

// Makes a DAX device of exactly `range`, without a driver. One of exactly this range: OK. The
// region may be bare (dax_region.h). INVALID_ARGUMENT/BAD_RANGE: not within the region, or not at
// multiples of its alignment. FAILED_PRECONDITION/RANGE_TAKEN: another DAX device has some of it;
// HOST_UNFIT: autoprobe cannot be switched off. INTERNAL/DAX_CARVE: the kernel refuses. Whatever
// fails leaves nothing behind.
absl::Status CarveDax(const HostFiles& files, const DaxRegion& region, const HpaRange& range);

// Takes all bytes from the DAX device of exactly `range` and removes it (daxN.0 stays, empty).
// None: OK. `hint` and the region as in FindRegionDax. FAILED_PRECONDITION/DAX_BOUND while a driver
// has it, /BLOCKS_BUSY while the kernel uses its memory without one; INTERNAL/DAX_CARVE.
absl::Status UncarveDax(const HostFiles& files, const DaxRegion& region, const HpaRange& range,
                        const std::string& hint);

// Takes the DAX device over the whole region apart that the kernel makes by itself, unless
// a process uses it: WhyWhole names it. OK: there is none any more.
absl::Status TakeWholeApart(const HostFiles& files, const DaxRegion& region,
                            const Deadline& deadline);

// Removes empty DAX devices that a process left when it was killed in between. One stays: the
// kernel's seed, which is kept empty, and by which the address of a region of dax_hmem is known.
// It writes no size: somebody may be removing the same device (daxctl destroy-device), or giving it
// bytes. A process that writes daxN.M/size waits for the kernel's lock of all DAX regions, while
// one that removes daxN.M holds that lock and waits until no one writes there; both wait for ever
// (Linux 6.12, 7.2).
void TidyEmptyDax(const HostFiles& files, const DaxRegion& region);

// Who has the DAX device over the whole region, and what to do, for people; "": there is none.
std::string WhyWhole(const HostFiles& files, const DaxRegion& region);

}  // namespace cxlpool::agent

#endif  // CXLPOOL_HOST_AGENT_ADAPTERS_LINUX_DAX_DAX_CARVE_H_
