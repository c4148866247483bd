package natsauth

import "fmt"

// Variables of the environment of a nats-server that loads File.
const (
	UserVariable     = "NATS_USER"
	PasswordVariable = "NATS_PASSWORD"
	IssuerVariable   = "NATS_ISSUER"
)

// File is the accounts of a log of that many lanes as a file for nats-server, with values from its environment.
func File(lanes int) string {
	return fmt.Sprintf("# Made by: scrip nats config --lanes %d\n#\n"+
		"# The environment of nats-server must have %s and %s, for scrip's servers alone, and %s, which\n"+
		"# `scrip nats issuer` prints.\n\n", lanes, UserVariable, PasswordVariable, IssuerVariable) +
		Render(Config{Lanes: lanes, Users: []User{{Name: "$" + UserVariable, Password: "$" + PasswordVariable}}, Issuer: "$" + IssuerVariable, Separate: true})
}
