// Ranks that are threads of one process and share its memory.
//
// How calls run:
//  - A call only says where its buffers are. Work (copies, sums) becomes possible as soon as the
//    ranks that it concerns have made the call, and is done by whichever of them waits for it, or
//    by the last one to arrive where it is small. So no rank ever depends on another rank's wait,
//    only on its calls; the one exception is publish, whose root waits for its readers' release.
//  - Small messages are taken along at the call: their sender never waits.
//  - No copy is made for publish: a reader's view is the root's memory.
//  - Buffers of a call may not overlap, but for: all_gather with in == out + rank() * count, and
//    reduce_scatter with out == in + rank() * count.
//  - The Message given to publish must stay where it is until its ticket is waited for or dropped.
//  - Extremes: a NaN is both the least and the largest of all values. Sums of i32 wrap around.
//  - Complex values have sums but no extremes: std::invalid_argument, as for negative counts and
//    ranks that do not exist.
//  - Waiting threads sleep.
//
// How calls fail: with a CommunicationError, on all ranks of the communicator, of its children, its
// parent and so on (the family), each in the call or wait that it is in or makes next:
//  - abort_team is called: whoever runs a rank does so when the rank ends by an exception;
//  - a ticket that nobody waited for is dropped because an exception passes;
//  - a rank destroys its communicator while others still expect a call of it;
//  - ranks make different calls, or the same with different arguments;
//  - a wait outlasts the time limit: the message names the ranks waited for.
// Once a wait has thrown, no other rank touches the buffers of that call. A ticket's destructor
// never throws; check_team tells whether one had reason to.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/communication_error.h"
#include "comm/communicator.h"
#include "tile/cpu/cpu.h"

namespace jaxmg {

// Element r belongs to rank r and is used by that rank's thread. time_limit bounds each wait; zero
// means none.
std::vector<std::unique_ptr<Communicator<tile::Cpu>>> make_thread_communicators(
    int ranks, std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::zero());

// Makes all present and later calls of the whole family of `any` fail for this reason. May be
// called from any thread, any number of times; the first reason stays.
void abort_team(Communicator<tile::Cpu>& any, const std::string& reason);

// Throws the family's CommunicationError, if there is one.
void check_team(const Communicator<tile::Cpu>& any);

}  // namespace jaxmg
