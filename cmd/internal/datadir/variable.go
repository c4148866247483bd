package datadir

import (
	"fmt"
	"os"
	"strings"
)

// Variable looks up an environment variable: its value, or the content of the file that the variable NAME_FILE names,
// without white space around it, so that a secret needs to stand neither in the environment nor on a command line.
// Empty counts as not given; the variable itself wins.
func Variable(env func(string) (string, bool), name string) (string, error) {
	if value, _ := env(name); value != "" {
		return value, nil
	}
	file, _ := env(name + "_FILE")
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading what %s_FILE names: %w", name, err)
	}
	return strings.TrimSpace(string(raw)), nil
}
