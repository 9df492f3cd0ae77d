SELECT to_regclass('{schema}.store') IS NOT NULL
