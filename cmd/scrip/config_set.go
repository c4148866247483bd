package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

func (m *Main) configSet() *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use: "set KEY VALUE", Short: "Change a setting at all servers",
		Long: `Change a setting at all servers. The command returns when the change is stored with its author and time; it takes effect
at all servers within a second. Concurrent changes are all stored, and the last one is in force.

` + settingsHelp() + `
VALUE ` + settings.ToDefault + ` restores the default. A pause of an unknown campaign is refused (exit code 3).
An invalid value is refused (exit code 2), and nothing is stored.`,
		Example: `  scrip config set reminder.rate 2000
  scrip config set reminder.pause.summer true --by 'Ann, on call'
  scrip config set reminder.grace default`,
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := cli.Args("KEY", "VALUE")(cmd, given); err != nil {
			if len(given) == 1 {
				if unknown := settings.CheckName(given[0]); unknown != nil {
					return &cli.UsageError{Err: unknown}
				}
			}
			return err
		}
		if _, err := settings.Check(given[0], given[1]); err != nil {
			return &cli.UsageError{Err: err}
		}
		return nil
	}
	cmd.Flags().Var(&cli.Value{Kind: "NAME", Parse: func(s string) error {
		by = s
		return settings.CheckBy(s)
	}}, "by", "author of the change, for the history (default user@host)")
	return m.queryRunE(cmd, func(ctx context.Context, s *session, given []string) error {
		if by == "" {
			by = userAtHost()
		}
		store, err := m.settings(ctx, s, nil)
		if err != nil {
			return err
		}
		if campaign, ok := settings.Pauses(given[0]); ok {
			if err := m.mayPause(ctx, s, store, given[0], given[1], campaign); err != nil {
				return err
			}
		}
		change, err := store.Set(ctx, given[0], given[1], by)
		if err != nil {
			return notStored(err)
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, change)
		}
		_, err = fmt.Fprintf(m.Out, "%s: %s → %s (change %d, by %s)\n", change.Setting, plain(change.Was, 60), change.Value, change.N, change.By)
		return err
	})
}

// mayPause refuses to pause campaigns that do not exist, so that a mistyped name is an error. A pause can always be
// ended, also while no lane answers.
func (m *Main) mayPause(ctx context.Context, s *session, store *settings.Store, setting, value, campaign string) error {
	if value != "true" {
		state, err := store.Read(ctx)
		if err != nil {
			return err
		}
		if v, err := state.Value(setting); err == nil && v.Value == "true" {
			return nil
		}
	}
	_, err := s.Campaign(ctx, campaign)
	var refused *client.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.Outcome.Refusal == wire.CampaignNotFound:
		return m.refuse(wire.CampaignNotFound, "refused: %s: there is no campaign %s, so nothing was set; scrip campaign list shows all", setting, campaign)
	case errors.As(err, &refused):
		return err
	}
	return fmt.Errorf("the campaign %s could not be looked up, so nothing was set: %w; see scrip status, and try again", campaign, err)
}

// userAtHost is the user that runs the program and the host's name, each "unknown" where the system has none.
func userAtHost() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	by := plain(name+"@"+host, 100)
	if settings.CheckBy(by) != nil {
		return "unknown"
	}
	return by
}
