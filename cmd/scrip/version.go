package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// version is set by the linker in releases; otherwise the build says which commit it is of.
var version string

func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			text = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if text == "" {
		return info.Main.Version
	}
	return text + changed
}

func (m *Main) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Say which scrip this is", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				Format  int    `json:"log_format"`
			}{versionText(), runtime.Version(), topology.Format}
			if m.global.output == outputJSON {
				return json.NewEncoder(m.Out).Encode(v)
			}
			_, err := fmt.Fprintf(m.Out, "scrip %s, %s, log format %d\n", v.Version, v.Go, v.Format)
			return err
		},
	}
	unusedIDFlag(cmd)
	return cmd
}
