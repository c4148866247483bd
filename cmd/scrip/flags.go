package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// fields are the members of a request that the command line gave, as they are encoded to JSON.
type fields map[string]any

// form is how the text of a flag becomes the value of a field.
type form struct {
	kind  string // its placeholder in help
	parse func(m *Main, text string) (any, error)
}

// none clears a setting in an update: it goes back to its default.
const none = "none"

// The forms.
var (
	text   = form{"TEXT", func(_ *Main, s string) (any, error) { return s, nil }}
	list   = form{"LIST", func(_ *Main, s string) (any, error) { return strings.Split(s, ","), nil }}
	number = form{"N", func(_ *Main, s string) (any, error) {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, errors.New("must be a whole number")
		}
		return n, nil
	}}
	numbers = form{"N,…", func(m *Main, s string) (all any, err error) {
		list := strings.Split(s, ",")
		values := make([]any, len(list))
		for i := range list {
			if values[i], err = number.parse(m, strings.TrimSpace(list[i])); err != nil {
				return nil, errors.New("must be whole numbers with commas between them")
			}
		}
		return values, nil
	}}
	yes = form{"bool", func(_ *Main, s string) (any, error) {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return nil, errors.New("must be true or false")
		}
		return v, nil
	}}
	moment = form{"TIME", func(m *Main, s string) (any, error) {
		at, err := cli.ParseTime(s, m.Clock.Now())
		return at.Time(), err
	}}
	period = form{"DURATION", func(_ *Main, s string) (any, error) {
		var d wire.Period
		return &d, d.UnmarshalText([]byte(s))
	}}
	object = form{"JSON", func(_ *Main, s string) (any, error) {
		if !json.Valid([]byte(s)) {
			return nil, errors.New(`must be JSON such as {"percent":10}`)
		}
		return json.RawMessage(s), nil
	}}
)

// orNone takes none, too, which clears the field.
func (f form) orNone() form {
	return form{f.kind, func(m *Main, s string) (any, error) {
		if s == none {
			return nil, nil
		}
		return f.parse(m, s)
	}}
}

// flag adds a flag for a field of a request. A flag that is not given leaves the field out.
func (m *Main) flag(f *pflag.FlagSet, into fields, flag, field string, as form, usage string) {
	flagged := f.VarPF(&cli.Value{Kind: as.kind, Parse: func(s string) error {
		v, err := as.parse(m, s)
		if more, is := v.([]string); is {
			before, _ := into[field].([]string)
			v = append(before, more...)
		}
		if err == nil {
			into[field] = v
		}
		return err
	}}, flag, "", usage)
	if as.kind == "bool" {
		flagged.NoOptDefVal = "true"
	}
}

const onceUsage = "`ID` of the command, at most 64 bytes; a retry with the same one takes effect once"

// idFlag is on every command. One that no lane decides takes it too, and does not recognise its retry by it.
func idFlag(cmd *cobra.Command, decided bool) *string {
	usage := "`ID` of the command, which every command takes; this one does not recognise its retry by it"
	if decided {
		usage = onceUsage
	}
	return cmd.Flags().String("id", "", usage)
}

// byFlag adds the flag of who makes a change with the credentials of the servers, which do not prove a name.
func (m *Main) byFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&cli.Value{Kind: "NAME", Parse: func(s string) error {
		m.by = s
		return wire.CheckBy("by", s)
	}}, "by", "author of the change, for the history (default user@host); with a key the author is its name")
}
