package pgd

import "syscall"

// setDeathSignal makes the kernel send the process SIGINT, a fast shutdown, when the thread that started it ends, which is
// when scrip dies, by kill -9 too: the caller must start the process from a thread it keeps until the process ended.
func setDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
