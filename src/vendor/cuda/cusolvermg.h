// cuSOLVERMg: NVIDIA's solver for the GPUs of one process.
//
// The library is opened at run time, by the soname that belongs to the CUDA we are built with, and
// only when a call asks for it. Facts about it that shape the code:
//  - The matrix is 1D block-cyclic by columns, and only that: another storage gives wrong numbers
//    and no error. Leading dimension and row block are n.
//  - One host thread calls it for all devices. Its streams are its own: data must be in place when
//    it is called.
//  - Sizes are int, IA = JA = 1, only the lower triangle works throughout.
//  - A routine that fails because of the numbers sets info > 0 and may call that an internal error
//    besides.
//  - Tiles of Getrf and Getrs have at most 512 columns, those of Syevd 1024 (core/plan_vendor.cpp).
//  - Getrs knows no transposed systems.
//  - The pivots of Getrf lie as a matrix of one row would that is dealt out as A's columns are.
//  - Syevd leaves eigenvalues in the host's memory. Its float32 eigenvectors have been reported to
//    be unusable at some sizes above 15000.
//  - At most 32 devices.
//  - Access between the devices is the caller's to enable (tile/cuda/peer_access.h).
//  - What it allocates with its handle (streams, cuBLAS workspaces) is not ours to place; its
//    workspaces are.
#pragma once

#include <memory>
#include <vector>

#include "core/plan.h"
#include "vendor/library.h"

namespace jaxmg::vendor {

// For plan's routine on these devices, in rank order. Handles are kept for the process, by device
// list. Throws UnavailableError if the library is not to be had.
std::unique_ptr<Library> make_cusolvermg(const std::vector<int>& devices, const Plan& plan);

}  // namespace jaxmg::vendor
