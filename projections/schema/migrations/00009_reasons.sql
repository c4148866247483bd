-- Reasons of dead letters no longer hold PostgreSQL's own words, which depend on its version and language.

-- +goose Up
UPDATE scrip.dead_letter SET reason = regexp_replace(reason, '^PostgreSQL refuses it: .* \(SQLSTATE (\w{5})\)$', 'PostgreSQL refuses it (SQLSTATE \1)')
WHERE starts_with(reason, 'PostgreSQL refuses it: ');

-- +goose Down
SELECT 1;
