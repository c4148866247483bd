//go:build !linux

package process

import "syscall"

func deathSignal() *syscall.SysProcAttr { return nil }
