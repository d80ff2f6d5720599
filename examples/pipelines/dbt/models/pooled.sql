-- depends_on: {{ ref('batch_check') }}
select * from {{ ref('train') }} union all select * from {{ ref('batch') }}
