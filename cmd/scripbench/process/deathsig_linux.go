package process

import "syscall"

// deathSignal has the kernel end a server when the program that started it is gone.
func deathSignal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
