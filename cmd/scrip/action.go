package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// action is a command that sends one action of package ops, and prints its answer, of type A.
type action[A any] struct {
	use, short, long, example string
	name                      string
	args                      []string // the fields that are arguments, all required unless optional
	optional                  bool
	without                   []string // fields that have no flag
	by                        bool     // it takes --by
	prepare                   func(cmd *cobra.Command, given fields, args []string) error
	print                     func(A) error
	json                      func(A) any // what -o json prints, if it is not the answer itself
}

// command makes the command: its flags from the table of actions; a request to a server, which checks it; its answer.
func command[A any](m *Main, a action[A]) *cobra.Command {
	cmd := &cobra.Command{Use: a.use, Short: a.short, Long: a.long, Example: a.example, Args: a.arguments}
	given, required := m.actionFlags(cmd, a.name, append(a.without, a.args...)...)
	if a.by {
		m.byFlag(cmd)
	}
	takesID := ops.Named(a.name).TakesID()
	m.query(cmd, func(_ context.Context, s *session, args []string) error {
		if err := cli.Require(cmd, required...); err != nil {
			return err
		}
		for i, arg := range args[:min(len(args), len(a.args))] {
			given[a.args[i]] = arg
		}
		if s.id != "" && takesID {
			given["id"] = s.id
		}
		if a.prepare != nil {
			if err := a.prepare(cmd, given, args); err != nil {
				return err
			}
		}
		var answer A
		body, err := m.whole(cmd.Context(), s, ops.Named(a.name), given)
		if body == nil {
			return err
		}
		if wrong := json.Unmarshal(body, &answer); wrong != nil {
			return fmt.Errorf("scrip.%s: the answer cannot be read: %w", a.name, wrong)
		}
		m.instants = instants(given)
		switch {
		case m.global.output == outputJSON && a.json != nil:
			return errors.Join(cli.JSON(m.Out, a.json(answer)), err)
		case m.global.output == outputJSON:
			return errors.Join(cli.JSON(m.Out, answer), err)
		}
		return errors.Join(a.print(answer), err)
	})
	if takesID {
		cmd.Flags().Lookup("id").Usage = onceUsage
	}
	return cmd
}

// arguments checks how many there are.
func (a *action[A]) arguments(cmd *cobra.Command, given []string) error {
	if len(a.args) == 0 {
		return cli.NoArgs(cmd, given)
	}
	if a.optional && len(given) < len(a.args) {
		return nil
	}
	var names []string
	for i := range a.args {
		names = append(names, strings.Trim(strings.Fields(a.use)[i+1], "[]"))
	}
	return cli.Args(names...)(cmd, given)
}

// actionFlags adds a flag for each field of an action's request but those without one. The flags that are given fill the fields.
func (m *Main) actionFlags(cmd *cobra.Command, name string, without ...string) (given fields, required []string) {
	given = fields{}
	a := ops.Named(name)
	for i := range a.Fields {
		f := &a.Fields[i]
		if slices.Contains(without, f.Name) {
			continue
		}
		m.flag(cmd.Flags(), given, flagOf(f.Name), f.Name, formOf(f.Type()), usageOf(f))
		if f.Required {
			required = append(required, flagOf(f.Name))
		}
	}
	return given, required
}

// usageOf describes the flag of a field.
func usageOf(f *ops.Field) string {
	usage := strings.TrimSuffix(f.Doc, ".")
	var bounds []string
	if f.OneOf() != nil {
		bounds = append(bounds, strings.Join(f.OneOf(), "|"))
	}
	if f.Most > 0 {
		bounds = append(bounds, fmt.Sprintf("%d to %d", f.Least, f.Most))
	}
	if f.Default() != "" {
		bounds = append(bounds, "default "+f.Default())
	}
	if len(bounds) > 0 {
		usage += " (" + strings.Join(bounds, ", ") + ")"
	}
	return strings.TrimSpace(usage)
}

// flagOf is the name of the flag of a field.
func flagOf(field string) string {
	switch field {
	case "campaigns", "origins": // a flag has one, or several with commas between them
		return strings.TrimSuffix(field, "s")
	case "customer_id":
		return "customer"
	}
	for i := range fieldFlags {
		if f := &fieldFlags[i]; f.field == field {
			return f.flag
		}
	}
	return strings.ReplaceAll(field, "_", "-")
}

// formOf is the form of a field by its type.
func formOf(t reflect.Type) form {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return moment
	case t == reflect.TypeFor[json.RawMessage]():
		return object
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint32:
		return numbers
	case t.Kind() == reflect.Slice:
		return list
	case t.Kind() == reflect.Bool:
		return yes
	case t.Kind() == reflect.Int, t.Kind() == reflect.Uint64:
		return number
	}
	return text
}

// ask sends a request to a server. Its errors name the next step.
func (s *session) ask(ctx context.Context, name string, request, into any) error {
	err := s.Manage(ctx, name, request, into)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w; no server answers this request: start one with the api role, or upgrade it", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("unknown outcome, a change may have been made: %w; see what is there before you send it again", err)
	}
	return err
}
