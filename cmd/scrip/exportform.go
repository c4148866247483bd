package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// exportForm is how an export is written.
type exportForm struct {
	json bool
	csv  csvKind
	mask *replay.Mask // nil = codes as they are
}

// csvKind is for whom CSV is written: programs, or people with a spreadsheet.
type csvKind string

const (
	csvPlain csvKind = "plain"
	csvExcel csvKind = "excel"
)

func (k csvKind) field(s string) string {
	if k == csvExcel {
		return replay.Harmless(s)
	}
	return s
}

// csvFlag adds --csv. Plain is the default: a program would take the quotes for part of the text.
func csvFlag(cmd *cobra.Command, kind *csvKind) {
	cmd.Flags().Var(choice((*string)(kind), string(csvPlain), string(csvPlain), string(csvExcel)), "csv",
		"for whom CSV is; excel puts a single quote before texts that a spreadsheet would run as a formula")
}

const maskHelp = `Codes are as good as money. With --mask-codes FILE each is replaced by a hash under the key in FILE, which is made if it
does not exist. The same code has the same hash wherever the same key was used, so what was exported can be joined by it.
Free text, such as the reason of a void, is left as it is.`

func maskFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "mask-codes", "", "replace codes by a hash under the key in this `FILE`")
}

// openMask returns nil where no file is given.
func openMask(file string) (*replay.Mask, error) {
	if file == "" {
		return nil, nil
	}
	mask, err := replay.OpenMask(file)
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, usagef("--mask-codes: %w", err)
	}
	return mask, asUsage(err)
}
