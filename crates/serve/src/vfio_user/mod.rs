//! vfio-user: a PCI function for virtual machines and local processes.
