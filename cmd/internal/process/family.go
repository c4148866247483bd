package process

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Family is a process and its descendants at this moment, parents first. It runs ps, which Linux and macOS have.
func Family(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	children := map[int][]int{}
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

// SignalFamily sends a signal to a process and its descendants. A descendant that has ended meanwhile is no error.
func SignalFamily(pid int, sig syscall.Signal) error {
	family, err := Family(pid)
	if err != nil {
		return err
	}
	for i, member := range family {
		if err := syscall.Kill(member, sig); err != nil && i == 0 {
			return fmt.Errorf("signal %s to process %d: %w", sig, pid, err)
		}
	}
	return nil
}
