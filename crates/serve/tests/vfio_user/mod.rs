//! The vfio-user server, tried from the other side of its socket.

mod dma;
mod interrupts;
mod late;
mod life;
mod noise;
mod nvme;
mod protocol;
mod qemu;
mod support;
mod trial;
