// Package ops is every action of people, once.
package ops
