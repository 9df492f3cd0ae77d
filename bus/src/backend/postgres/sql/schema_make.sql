DO $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{schema}') THEN
        CREATE SCHEMA {schema};
    END IF;
END $$;
