package natsd

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// globalAccount is NATS' account of users without another.
const globalAccount = server.DEFAULT_GLOBAL_ACCOUNT

// addAccounts adds Options.Accounts to nats-server's options.
//
// Here the servers' account, which is the one that answers log-ins, is the global one, which a configuration file cannot name:
// JetStream's paths contain the account, so a store stays where it is when accounts are switched on or off.
// nats-server's own `mappings` block makes an account of this name in its options, too, and NewServer then applies it to the
// global account.
func (o Options) addAccounts(so *server.Options) error {
	so.Username, so.Password = "", "" // now a user of the servers' account
	if err := so.ProcessConfigString(o.Accounts); err != nil {
		return fmt.Errorf("the accounts of the embedded NATS server: %w", err)
	}
	if so.AuthCallout == nil {
		return errors.New("the accounts of the embedded NATS server name none that answers log-ins")
	}
	for _, a := range so.Accounts {
		if a.Name == so.AuthCallout.Account {
			a.Name = globalAccount
		}
	}
	so.AuthCallout.Account = globalAccount
	return nil
}
