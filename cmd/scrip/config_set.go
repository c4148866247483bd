package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/config"
)

func (m *Main) configSet() *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use: "set KEY VALUE", Short: "Change a setting at all servers",
		Long: `Change a setting at all servers. It returns when the change is stored, with who made it and when; servers have it in
force within a second. Of several who set at once, each change is kept, and the last one holds.

` + settingsHelp() + `
VALUE ` + config.ToDefault + ` takes a setting back to its default. A pause is refused (exit code 3) where there is no such campaign.
A value that makes no sense is refused (exit code 2), and nothing is stored.`,
		Example: `  scrip config set reminder.rate 2000
  scrip config set reminder.pause.summer true --by 'Ann, on call'
  scrip config set reminder.grace default`,
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args("KEY", "VALUE")(cmd, given); err != nil {
			if len(given) == 1 {
				if unknown := config.CheckName(given[0]); unknown != nil {
					return &usageError{unknown}
				}
			}
			return err
		}
		if _, err := config.Check(given[0], given[1]); err != nil {
			return &usageError{err}
		}
		return nil
	}
	cmd.Flags().Var(&value{kind: "NAME", set: func(s string) error {
		by = s
		return config.CheckBy(s)
	}}, "by", "who makes the change, for the history (default user@host)")
	return m.asks(cmd, func(ctx context.Context, s *session, given []string) error {
		if by == "" {
			by = userAtHost()
		}
		store, err := m.settings(ctx, s, nil)
		if err != nil {
			return err
		}
		if campaign, ok := config.Pauses(given[0]); ok {
			if err := m.mayPause(ctx, s, store, given[0], given[1], campaign); err != nil {
				return err
			}
		}
		change, err := store.Set(ctx, given[0], given[1], by)
		if err != nil {
			return notStored(err)
		}
		if m.global.output == outputJSON {
			return m.printJSON(change)
		}
		_, err = fmt.Fprintf(m.Out, "%s: %s → %s (change %d, by %s)\n", change.Setting, plain(change.Was, 60), change.Value, change.N, change.By)
		return err
	})
}

// mayPause refuses settings of campaigns that do not exist: they would do nothing, and whoever mistyped a name would
// believe otherwise. What is paused can always be let go, also while no lane answers.
func (m *Main) mayPause(ctx context.Context, s *session, store *config.Store, setting, value, campaign string) error {
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
		return m.refuse(wire.CampaignNotFound, "refused: %s: there is no campaign %s, so nothing was set; scrip campaign list names them", setting, campaign)
	case errors.As(err, &refused):
		return err
	}
	return fmt.Errorf("it is not known whether there is a campaign %s, so nothing was set: %w; see scrip status, and ask again", campaign, err)
}

// userAtHost is who runs the program, as far as the machine knows.
func userAtHost() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	who := plain(name+"@"+host, 100)
	if config.CheckBy(who) != nil {
		return "unknown"
	}
	return who
}
