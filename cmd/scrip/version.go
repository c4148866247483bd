package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// version and commit are set by the linker in releases; else the commit in the build information is used.
var version, commit string

// contract is the version of domain/CONTRACT.md.
const contract = "1.1"

// formats are what this program writes, by what it is called on the changelog's page. Each has its own number.
var formats = []struct {
	name, field string
	number      string
}{
	{"contract", "contract", contract},
	{"log", "log_format", fmt.Sprint(topology.Format)},
	{"data directory", "data_format", fmt.Sprint(datadir.Format)},
	{"backup", "backup_format", fmt.Sprint(backup.Format)},
	{"snapshot of a lane", "snapshot_format", fmt.Sprint(domain.SnapshotFormat)},
	{"snapshot of a scheduler", "scheduler_format", fmt.Sprint(timers.Format)},
	{"schema of the read tables", "schema_format", fmt.Sprint(schema.Version())},
}

// built is the commit that this program was built from, and whether files were changed.
func built() (revision string, changed bool) {
	return cli.Build{Version: version, Commit: commit}.Revision()
}

func versionText() string { return cli.Build{Version: version, Commit: commit}.String() }

func (m *Main) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, its commit, and the number of each format", Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			revision, _ := built()
			if m.global.output == outputJSON {
				// In this order: a map would sort them.
				var line strings.Builder
				fmt.Fprintf(&line, `{"version":%s,"commit":%s,"go":%s`, quoted(versionText()), quoted(revision), quoted(runtime.Version()))
				for _, f := range formats {
					number := f.number
					if f.field == "contract" {
						number = quoted(number)
					}
					fmt.Fprintf(&line, `,%s:%s`, quoted(f.field), number)
				}
				_, err := fmt.Fprintln(m.Out, line.String()+"}")
				return err
			}
			var list []string
			for _, f := range formats {
				list = append(list, f.name+" "+f.number)
			}
			_, err := fmt.Fprintf(m.Out, "scrip %s, commit %s, %s\nformats: %s\n", versionText(), revision, runtime.Version(), strings.Join(list, ", "))
			return err
		},
	}
	unusedIDFlag(cmd)
	return cmd
}

// quoted is a text as JSON has it.
func quoted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		return `""` // no string fails
	}
	return string(raw)
}
