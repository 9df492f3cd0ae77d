-- Tables of a newer version are left as they are: what follows would put functions of this one in their place.
DO $$ BEGIN
    IF to_regclass('{schema}.store') IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM {schema}.store WHERE version > {version}) THEN
            RAISE EXCEPTION 'the tables in the schema {schema} were made by a newer version of bus: run the script of that one';
        END IF;
    END IF;
END $$;
