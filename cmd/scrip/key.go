package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// keyCommand holds what is done with keys.
func (m *Main) keyCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "seal", Short: "Print the key that checks the seals of messages, for readers without the code key", Args: noArgs,
		Long: `Print the key that checks the seals of messages, for readers without the code key: push senders, replays on other
machines, servers of role projector. No code can be read with it. Who has it can also make seals: give it only to programs
that you trust not to write to the log, and keep it as you keep a password.

Readers take it as --seal-key-file FILE, SCRIP_SEAL_KEY_FILE=FILE, or SCRIP_SEAL_KEY.`,
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
				return &usageError{err}
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
				return fmt.Errorf("there is no code key in %s, from which the seal key is made; name the server's data directory with --data DIR, or set %s", m.global.data, datadir.KeyVariable)
			case code.Fingerprint(key.Key) != log.KeyFingerprint:
				return fmt.Errorf("the code key of %s is not that of this log; name the directory of the server that you ask with --data DIR", key.From)
			}
			text := seal.Text(key.Key, log.UUID)
			if m.global.output == outputJSON {
				return m.printJSON(map[string]string{"seal_key": text})
			}
			_, err = fmt.Fprintln(m.Out, text)
			return err
		},
	}
	unusedIDFlag(show)
	return group("key", "Keys of the log", show)
}
