// Package config holds what operators change while servers run, and what they changed it from.
package config
