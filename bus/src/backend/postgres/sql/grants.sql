-- What the user {role} of a host needs, and no more: it can neither make, change nor drop tables. Run by the owner of
-- the schema after the tables were made.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.store TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.endpoint, {schema}.reader TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.message, {schema}.delayed TO {role};
GRANT SELECT, INSERT, DELETE ON {schema}.dead, {schema}.dropped TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.strict, {schema}.fence TO {role};
GRANT SELECT, INSERT, UPDATE ON {schema}.lock TO {role};
GRANT USAGE ON SEQUENCE {schema}.message_id TO {role};
GRANT EXECUTE ON FUNCTION {schema}.clock_us() TO {role};
GRANT EXECUTE ON FUNCTION {schema}.put(text, boolean, uuid, text, text, bigint, bigint, bigint, bytea, boolean) TO {role};
GRANT EXECUTE ON FUNCTION {schema}.send(text, text, jsonb, boolean) TO {role};
