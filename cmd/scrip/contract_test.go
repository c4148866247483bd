package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTheContractNamesCommands: every command that does something, with its flags, is on the page, and no other command.
func TestTheContractNamesCommands(t *testing.T) {
	raw, err := os.ReadFile("../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	_, text, _ := strings.Cut(string(raw), "\n## Command line\n")
	text, _, _ = strings.Cut(text, "\n## Files\n")
	_, serve, _ := strings.Cut(text, "\n### scrip serve\n")
	rows := map[string]string{} // by command
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `scrip ") {
			continue
		}
		names, flags, _ := strings.Cut(strings.Trim(line, "| \n"), " | ")
		for _, span := range regexp.MustCompile("`([a-z ]+)[^`]*`").FindAllStringSubmatch(names, -1) {
			rows[strings.TrimSpace(span[1])] = flags + " "
		}
	}
	rows["scrip serve"] = serve
	m := &Main{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "help" || c.Hidden {
			return
		}
		if c.HasSubCommands() {
			for _, sub := range c.Commands() {
				walk(sub)
			}
			return
		}
		flags, there := rows[c.CommandPath()]
		delete(rows, c.CommandPath())
		if !there {
			t.Errorf("CONTRACT.md lacks %s", c.CommandPath())
			return
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "id" || f.Name == "help" {
				return
			}
			if !regexp.MustCompile("--" + f.Name + "[^a-z-]").MatchString(flags) {
				t.Errorf("CONTRACT.md lacks --%s of %s", f.Name, c.CommandPath())
			}
		})
	}
	root := m.root()
	walk(root)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(text, "--"+f.Name) {
			t.Errorf("CONTRACT.md lacks the global --%s", f.Name)
		}
	})
	for name := range rows {
		t.Errorf("CONTRACT.md has %s, the program has not", name)
	}
}

// TestEveryEndpointHasACommand: what the service does for a command, the command line does too, under the same words.
func TestEveryEndpointHasACommand(t *testing.T) {
	root := (&Main{}).root()
	for c := range wire.Commands() {
		if c.Spec().Endpoint == "" {
			continue // the scheduler's
		}
		words := strings.Split(strings.TrimSuffix(c.Spec().Endpoint, ".*"), ".")
		want := "scrip " + strings.Join(words, " ")
		if cmd, _, err := root.Find(words); err != nil || cmd.CommandPath() != want || cmd.HasSubCommands() {
			t.Errorf("there is no %s for %s", want, c)
		}
	}
}
