package schema

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// searchPath is where names without a schema are looked up. An operator or function of the same name that somebody has
// made in schema public, and that fits its arguments better than PostgreSQL's own, would otherwise run with our rights.
// Temporary tables are found nevertheless.
const searchPath = "pg_catalog"

// Pin fixes what our statements mean, whatever is set for the database, the role or in the URL: where names are looked up,
// and that text is UTF-8. Every connection that works on the read tables is made with it.
func Pin(config *pgx.ConnConfig) {
	config.RuntimeParams["search_path"] = searchPath
	config.RuntimeParams["client_encoding"] = "UTF8"
}

// Connect connects to the database with the read tables.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	Pin(config)
	return pgx.ConnectConfig(ctx, config)
}
