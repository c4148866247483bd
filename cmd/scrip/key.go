package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// keyCommand groups the commands about keys.
func (m *Main) keyCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "seal", Short: "Print the key that checks the seals of messages, for readers without the code key", Args: cli.NoArgs,
		Long: `Print the key that checks the seals of messages, for readers without the code key: push senders, replays on other
machines, servers of role projector. No code can be read with it. It can also make seals: give it only to programs that you
trust not to write to the log, and protect it like a password.

Readers accept it as --seal-key-file FILE, SCRIP_SEAL_KEY_FILE=FILE, or SCRIP_SEAL_KEY.`,
		Example: `  (umask 077; scrip key seal > seal.key)
  pushsender --seal-key-file seal.key`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := m.connect()
			if err != nil {
				return err
			}
			defer s.close()
			given, err := datadir.Variable(m.Env, datadir.KeyVariable)
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), m.global.timeout)
			defer cancel()
			_, log, err := s.log(ctx)
			if err != nil {
				return err
			}
			key, found, err := datadir.FindKey(m.global.data, given)
			switch {
			case err != nil:
				return err
			case !found:
				return fmt.Errorf("there is no code key in %s, from which the seal key is derived; name the server's data directory with --data DIR, or set %s", m.global.data, datadir.KeyVariable)
			case code.Fingerprint(key.Key) != log.KeyFingerprint:
				return fmt.Errorf("the code key of %s is not that of this log; name the data directory of this server with --data DIR", key.From)
			}
			text := seal.Text(key.Key, log.UUID)
			if m.global.output == outputJSON {
				return cli.JSON(m.Out, map[string]string{"seal_key": text})
			}
			_, err = fmt.Fprintln(m.Out, text)
			return err
		},
	}
	unusedIDFlag(show)
	return cli.Group("key", "Keys of the log", show)
}
